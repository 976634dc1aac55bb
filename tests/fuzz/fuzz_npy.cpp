// fuzz_npy.cpp: the .npy reader on files of any kind: damaged ones, and bytes from nowhere. A file gives an error that
// names it, or an array of exactly the bytes that follow the header.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "damage.h"
#include "drawn_bytes.h"
#include "io/npy.h"
#include "require.h"

namespace flashtile::fuzz {
namespace {

const std::string file_name = "drawn.npy";

std::string with_magic(char version, const std::string& header) {
    std::string file = std::string("\x93NUMPY") + version + '\0';
    const auto length = static_cast<std::uint32_t>(header.size());
    file.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
    return file + header;
}

// The values may be a few bytes more or fewer than the shape says.
std::string drawn_file(FuzzedDataProvider& draw) {
    struct Type {
        const char* descr;
        std::size_t size;
    };
    constexpr std::array<Type, 14> types = {{{"<f8", 8},
                                             {"<f4", 4},
                                             {"<f2", 2},
                                             {"bfloat16", 2},
                                             {"|V2", 2},
                                             {"<V2", 2},
                                             {"|b1", 1},
                                             {"<i8", 8},
                                             {"<i4", 4},
                                             {"|u1", 1},
                                             {">f4", 4},
                                             {"<c8", 8},
                                             {"<U3", 12},
                                             {"|O", 8}}};
    const Type type = draw.PickValueInArray(types);
    std::vector<std::int64_t> shape(draw.ConsumeIntegralInRange<std::size_t>(0, 5));
    std::size_t bytes = type.size;
    for (auto& size : shape) {
        size = draw.ConsumeBool() ? draw.ConsumeIntegralInRange<std::int64_t>(0, 4)
                                  : draw.PickValueInArray<std::int64_t>(
                                        {-1, 1, 1 << 16, std::int64_t{1} << 32, std::int64_t{1} << 61, INT64_MAX});
        bytes *= static_cast<std::size_t>(size);
    }
    std::string header =
        fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{}), }}", type.descr,
                    draw.ConsumeBool() ? "False" : "True", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
    const bool damaged_inside = draw.ConsumeBool();
    if (damaged_inside) damage(header, draw);
    std::string file = with_magic(draw.PickValueInArray<char>({1, 2, 3}), header);
    if (bytes < 1024) file.append(bytes, draw.ConsumeIntegral<char>());
    if (!damaged_inside) damage(file, draw);
    return file;
}

void read(const std::string& drawn) {
    const std::vector<std::byte> file = exact_copy(drawn);
    const auto array = parsed(file, file_name, io::parse_npy);
    if (!array) return;
    const auto* values = static_cast<const std::byte*>(array->data);
    require(values >= file.data() && array->bytes() == static_cast<std::size_t>(&*file.end() - values),
            "the array is what follows the header");
    if (array->dtype == io::DType::bf16) return;  // read, never written
    const std::string header = io::npy_header(array->dtype, array->shape, file_name);
    std::vector<std::byte> again(header.size() + array->bytes());
    std::memcpy(again.data(), header.data(), header.size());
    const io::Array second = io::parse_npy(again, file_name);
    require(second.dtype == array->dtype && second.shape == array->shape, "what is written is what is read");
}

}  // namespace
}  // namespace flashtile::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider draw(data, size);
    switch (draw.ConsumeIntegralInRange(0, 3)) {
        case 0:
            flashtile::fuzz::read(draw.ConsumeRemainingBytesAsString());
            break;
        case 1: {
            const char version = draw.PickValueInArray<char>({1, 2, 3});
            flashtile::fuzz::read(flashtile::fuzz::with_magic(version, draw.ConsumeRemainingBytesAsString()));
            break;
        }
        default:
            flashtile::fuzz::read(flashtile::fuzz::drawn_file(draw));
    }
    return 0;
}
