// counted.h: vector.h's primitives for the unit that counts what moves (src/cpu/counted). It walks the blocks and
// computes nothing: its numbers mean nothing, and no walk depends on them. Vectors are as long as AVX-512's, so that a
// block may have as many rows as with any instruction set that multiplies vectors.
#pragma once

#include "cpu/isa/extensions.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kLanes = 16;
constexpr int kRows = 8;

using Vec = float __attribute__((vector_size(64)));
using IntVec = int32_t __attribute__((vector_size(64)));
using UintVec = uint32_t __attribute__((vector_size(64)));
using WideVec = uint64_t __attribute__((vector_size(64)));

inline Vec rounded(Vec x) {
    return x;
}
inline Vec max(Vec a, Vec) {
    return a;
}
inline bool all_one(Vec) {
    return true;
}
inline bool any(IntVec) {
    return false;
}
inline Vec exp2(Vec) {
    return Vec{};
}
inline Vec interleave_low(Vec a, Vec) {
    return a;
}
inline Vec interleave_high(Vec a, Vec) {
    return a;
}
inline WideVec multiply_even(UintVec, uint32_t) {
    return WideVec{};
}
inline float fp16_to_float(uint16_t) {
    return 0.0f;
}
inline uint16_t float_to_fp16(float) {
    return 0;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
