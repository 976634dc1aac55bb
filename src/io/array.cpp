// array.cpp: see array.h.
#include "io/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <utility>

namespace flashtile::io {
namespace {

static_assert(std::endian::native == std::endian::little, "both formats are little-endian, and values are not copied");

struct Traits {
    const char* name;
    std::size_t size;
};

constexpr std::array<Traits, 9> traits = {{{"fp64", 8},
                                           {"fp32", 4},
                                           {"fp16", 2},
                                           {"bf16", 2},
                                           {"e4m3", 1},
                                           {"bool", 1},
                                           {"int64", 8},
                                           {"int32", 4},
                                           {"uint8", 1}}};

}  // namespace

std::size_t size_of(DType dtype) {
    return traits.at(static_cast<std::size_t>(dtype)).size;
}

const char* name(DType dtype) {
    return traits.at(static_cast<std::size_t>(dtype)).name;
}

std::size_t Array::elements() const {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    return count;
}

std::optional<std::size_t> checked_bytes(std::span<const std::int64_t> shape, std::size_t element_size) {
    auto bytes = static_cast<std::int64_t>(element_size);
    bool none = false;
    for (const std::int64_t size : shape) {
        if (size < 0) return std::nullopt;
        none |= size == 0;
        if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
    }
    return none ? 0 : static_cast<std::size_t>(bytes);
}

std::string to_string(std::span<const std::int64_t> shape) {
    return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

}  // namespace flashtile::io
