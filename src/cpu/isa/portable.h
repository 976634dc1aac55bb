// portable.h: vector.h's primitives in vector extensions alone: four lanes on any CPU.
#pragma once

#include "cpu/isa/four_lanes.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kRows = 6;

// On x86-64 without FMA and on unknown CPUs. An unknown CPU's compiler may still fuse.
[[gnu::always_inline]] inline Vec rounded(Vec x) {
#if defined(__x86_64__)
    asm("" : "+x"(x));
#endif
    return x;
}

inline float fp16_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) return from_bits(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);  // inf, NaN
    // Scaling by 2^112 moves fp16's exponent bias to fp32's and makes subnormals normal.
    return from_bits(sign | to_bits(from_bits(magnitude << 13) * from_bits(0x77800000u)));
}

inline uint16_t float_to_fp16(float x) {
    const uint32_t bits = to_bits(x);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
    if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds past 65504
    if (magnitude < 0x38800000u) {
        // Subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
        const uint32_t rounded = to_bits(from_bits(magnitude) + 0.5f) - 0x3F000000u;
        return static_cast<uint16_t>(sign | rounded);
    }
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u;
    return static_cast<uint16_t>(sign | rounded >> 13);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
