// four_lanes.h: vector.h's primitives on vectors of 128 bits, in vector extensions alone. aarch64.h and portable.h
// share them.
#pragma once

#include "cpu/isa/extensions.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kLanes = 4;

using Vec = float __attribute__((vector_size(16)));
using IntVec = int32_t __attribute__((vector_size(16)));
using UintVec = uint32_t __attribute__((vector_size(16)));
using WideVec = uint64_t __attribute__((vector_size(16)));

inline Vec max(Vec a, Vec b) {
    return a > b ? a : b;
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
    return (reinterpret_cast<WideVec>(x) & 0xFFFFFFFFu) * static_cast<uint64_t>(m);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
