// bf16.h: numbers of 16 bits that are the upper half of an fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace gemma {

// To nearest even; not for NaN, which only weights that hold NaN could lead to.
inline std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float from_bf16(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

}  // namespace gemma
