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

// By way of fp16: with e4m3's exponent in the low bits of its own, fp16 has 2^-8 of the number, of subnormal ones too.
// NaN gets fp16's highest exponent.
#define FLASHTILE_WIDENS_E4M3
inline void widen_e4m3(const uint8_t* p, Vec& first, Vec& second) {
    const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(bytes, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
    const __m256i nan =
        _mm256_cmpeq_epi16(_mm256_and_si256(halves, _mm256_set1_epi16(0x3F80)), _mm256_set1_epi16(0x3F80));
    const __m256i x = _mm256_or_si256(halves, _mm256_and_si256(nan, _mm256_set1_epi16(0x4000)));
    first = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    second = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
