// fuzz_safetensors.cpp: the .safetensors reader on files of any kind: damaged ones, and bytes from nowhere. A file
// gives an error that names it, or tensors that lie side by side within it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "damage.h"
#include "drawn_bytes.h"
#include "io/safetensors.h"
#include "require.h"

namespace flashtile::fuzz {
namespace {

const std::string file_name = "drawn.safetensors";

std::string with_length(const std::string& header) {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

// Up to four tensors one after the other, in an order that need not be that of their offsets.
std::string drawn_file(FuzzedDataProvider& draw) {
    struct Type {
        const char* name;
        std::size_t size;
    };
    constexpr std::array<Type, 10> types = {{{"F64", 8},
                                             {"F32", 4},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"BOOL", 1},
                                             {"I64", 8},
                                             {"I32", 4},
                                             {"U8", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1}}};
    std::vector<std::string> entries;
    if (draw.ConsumeBool()) entries.push_back(R"("__metadata__":{"format":"pt","by":"\u00e9"})");
    std::size_t end = 0;
    for (int tensors = draw.ConsumeIntegralInRange(0, 4); tensors > 0; --tensors) {
        const Type type = draw.PickValueInArray(types);
        std::vector<std::int64_t> shape(draw.ConsumeIntegralInRange<std::size_t>(0, 4));
        std::size_t bytes = type.size;
        for (auto& size : shape) {
            size = draw.ConsumeIntegralInRange<std::int64_t>(0, 4);
            bytes *= static_cast<std::size_t>(size);
        }
        entries.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                      draw.PickValueInArray({"q", "attn.k", "", "v\\u0000", "\xc3\xa9", "a b"}),
                                      type.name, fmt::join(shape, ","), end, end + bytes));
        end += bytes;
    }
    if (draw.ConsumeBool()) std::ranges::reverse(entries);
    std::string header = fmt::format("{{{}}}", fmt::join(entries, ","));
    const bool damaged_inside = draw.ConsumeBool();
    if (damaged_inside) damage(header, draw);
    std::string file = with_length(header) + std::string(end, draw.ConsumeIntegral<char>());
    if (!damaged_inside) damage(file, draw);
    return file;
}

void read(const std::string& drawn) {
    const std::vector<std::byte> file = exact_copy(drawn);
    const auto content = parsed(file, file_name, io::parse_safetensors);
    if (!content) return;
    std::vector<bool> taken(file.size());
    io::NamedArrays tensors;
    for (const auto& [name, array] : content->tensors) {
        const auto begin = static_cast<const std::byte*>(array.data) - file.data();
        require(begin >= 8 && static_cast<std::size_t>(begin) + array.bytes() <= file.size(),
                "a tensor lies within the file");
        for (auto n = static_cast<std::size_t>(begin); n < static_cast<std::size_t>(begin) + array.bytes(); ++n) {
            require(!taken[n], "tensors share no byte");
            taken[n] = true;
        }
        tensors.emplace_back(name, array);
    }
    const std::string header = io::safetensors_header(tensors);
    std::vector<std::byte> again(header.size() + static_cast<std::size_t>(std::ranges::count(taken, true)));
    std::memcpy(again.data(), header.data(), header.size());
    const auto second = io::parse_safetensors(again, file_name).tensors;
    require(second.size() == tensors.size(), "all that is written is read");
    for (const auto& [name, array] : tensors)
        require(second.at(name).dtype == array.dtype && second.at(name).shape == array.shape,
                "what is written is what is read");
}

}  // namespace
}  // namespace flashtile::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider draw(data, size);
    switch (draw.ConsumeIntegralInRange(0, 3)) {
        case 0:
            flashtile::fuzz::read(draw.ConsumeRemainingBytesAsString());
            break;
        case 1:
            flashtile::fuzz::read(flashtile::fuzz::with_length(draw.ConsumeRemainingBytesAsString()));
            break;
        default:
            flashtile::fuzz::read(flashtile::fuzz::drawn_file(draw));
    }
    return 0;
}
