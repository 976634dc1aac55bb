// avx2.h: vector.h's primitives on AVX2 with FMA and F16C: eight lanes, 16 registers.
#pragma once

#include "cpu/isa/extensions.h"
#include "cpu/isa/f16c.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kLanes = 8;
constexpr int kRows = 6;

using Vec = float __attribute__((vector_size(32)));
using IntVec = int32_t __attribute__((vector_size(32)));
using UintVec = uint32_t __attribute__((vector_size(32)));
using WideVec = uint64_t __attribute__((vector_size(32)));

[[gnu::always_inline]] inline Vec rounded(Vec x) {
    asm("" : "+x"(x));
    return x;
}

inline Vec max(Vec a, Vec b) {
    return _mm256_max_ps(a, b);
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
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Vec interleave_high(Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

inline WideVec multiply_even(UintVec x, uint32_t m) {
    return reinterpret_cast<WideVec>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(x), _mm256_set1_epi32(static_cast<int>(m))));
}

#define FLASHTILE_CONVERTS_VECTORS
inline Vec widen_fp16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void store_fp16(uint16_t* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

// By way of fp16: with e4m3's exponent in the low bits of its own, fp16 has 2^-8 of the number, which is exact for
// subnormal ones too. NaN gets fp16's highest exponent.
#define FLASHTILE_WIDENS_E4M3
inline Vec widen_e4m3(const uint8_t* p) {
    const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i magnitude = _mm_and_si128(_mm_slli_epi16(bytes, 7), _mm_set1_epi16(0x3F80));
    const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x3F80));
    const __m128i sign = _mm_and_si128(_mm_slli_epi16(bytes, 8), _mm_set1_epi16(-0x8000));
    const __m128i halves = _mm_or_si128(_mm_or_si128(magnitude, sign), _mm_and_si128(nan, _mm_set1_epi16(0x4000)));
    return _mm256_cvtph_ps(halves) * 256.0f;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
