// aarch64.h: vector.h's primitives on AArch64: four lanes, 32 registers, fp16 conversions in hardware.
#pragma once

#include "cpu/isa/extensions.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kLanes = 4;
constexpr int kRows = 8;

using Vec = float __attribute__((vector_size(16)));
using IntVec = int32_t __attribute__((vector_size(16)));
using UintVec = uint32_t __attribute__((vector_size(16)));
using WideVec = uint64_t __attribute__((vector_size(16)));

[[gnu::always_inline]] inline Vec rounded(Vec x) {
    asm("" : "+w"(x));
    return x;
}

inline Vec max(Vec a, Vec b) {
    return greater_lanes(a, b);
}
inline bool all_one(Vec x) {
    return all_lanes_one(x);
}
inline bool any(IntVec lanes) {
    return any_lane(lanes);
}

inline Vec exp2(Vec x) {
    return exp2_by_rounding<IntVec>(max(-127.0f - Vec{}, x));
}

inline Vec interleave_low(Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
inline Vec interleave_high(Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

inline WideVec multiply_even(UintVec x, uint32_t m) {
    return multiply_even_lanes<WideVec>(x, m);
}

inline float fp16_to_float(uint16_t half) {
    __fp16 h;
    memcpy(&h, &half, sizeof h);
    return h;
}
inline uint16_t float_to_fp16(float x) {
    const __fp16 h = static_cast<__fp16>(x);
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
