// avx512.h: vector.h's primitives on AVX-512 (F, BW, CD, DQ, VL): sixteen lanes, 32 registers. On AVX-512
// stand the arithmetics of bf16_math.h and tile_math.h too.
#pragma once

#include "cpu/isa/extensions.h"
#include "cpu/isa/f16c.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kLanes = 16;
constexpr int kRows = 8;

using Vec = float __attribute__((vector_size(64)));
using IntVec = int32_t __attribute__((vector_size(64)));
using UintVec = uint32_t __attribute__((vector_size(64)));
using WideVec = uint64_t __attribute__((vector_size(64)));

[[gnu::always_inline]] inline Vec rounded(Vec x) {
    asm("" : "+v"(x));
    return x;
}

inline Vec max(Vec a, Vec b) {
    return _mm512_max_ps(a, b);
}
#define FLASHTILE_FOLDS_LANES
inline float largest_lane(Vec x) {
    return _mm512_reduce_max_ps(x);
}
inline float sum_of_lanes(Vec x) {
    return _mm512_reduce_add_ps(x);
}
inline bool all_one(Vec x) {
    return _mm512_cmp_ps_mask(x, 1.0f - Vec{}, _CMP_EQ_OQ) == 0xFFFF;
}
inline bool any(IntVec lanes) {
    return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(lanes), reinterpret_cast<__m512i>(lanes)) != 0;
}

// 2^f on [0, 1), exactly 1 at 0: a minimax polynomial. vscalefps rounds x down by itself.
constexpr int kExponentialDegree = 5;
constexpr float kExponential[kExponentialDegree + 1] = {
    1.0f, 0.6931510675154104f, 0.24016565110269236f, 0.05579930072801425f, 0.009014884570459408f, 0.00186895633690767f};

inline Vec exp2(Vec x) {
    const Vec f = _mm512_reduce_ps(x, 1);  // x - floor(x), 0 at -inf
    Vec p = kExponential[kExponentialDegree] - Vec{};
    FLASHTILE_UNROLL
    for (int n = kExponentialDegree; n-- > 0;) p = p * f + kExponential[n];
    // A result that would be subnormal is 0, as on the other sets: on many CPUs such a number costs as much as a
    // hundred others, and peaked rows are full of them.
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, -126.0f - Vec{}, _CMP_NLT_UQ), p, x);
}

// A constant that stays in its register: where the compiler knows a constant's value, it loads the value again in every
// unit of work.
template <class V>
[[gnu::always_inline]] inline V kept(V x) {
    asm("" : "+v"(x));
    return x;
}

// exp2 with its constants in registers; infinite where 2^x is too large.
struct Exp2InRegisters {
    [[gnu::always_inline]] Vec operator()(Vec x) const {
        const Vec f = _mm512_reduce_ps(x, 1);  // x - floor(x), 0 at infinities
        Vec p = c[kDegree];
        FLASHTILE_UNROLL
        for (int n = kDegree; n-- > 0;) p = p * f + c[n];
        return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), p, x);
    }

    static constexpr int kDegree = kExponentialDegree;
    Vec least = kept(-126.0f - Vec{});
    Vec c[kDegree + 1] = {kept(kExponential[0] - Vec{}), kept(kExponential[1] - Vec{}), kept(kExponential[2] - Vec{}),
                          kept(kExponential[3] - Vec{}), kept(kExponential[4] - Vec{}), kept(kExponential[5] - Vec{})};
};

inline Vec interleave_low(Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Vec interleave_high(Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Four passes, of which two stay within lanes of 128 bits and two move such lanes whole. Shuffles across lanes by
// single elements, as vector.h's passes need them, take an index and half as long again.
#define FLASHTILE_TRANSPOSES
inline void transpose(Vec (&rows)[kLanes]) {
    Vec next[kLanes];
    FLASHTILE_UNROLL
    for (int n = 0; n < kLanes; n += 2) {
        next[n] = _mm512_unpacklo_ps(rows[n], rows[n + 1]);
        next[n + 1] = _mm512_unpackhi_ps(rows[n], rows[n + 1]);
    }
    FLASHTILE_UNROLL
    for (int n = 0; n < kLanes; n += 4)
        for (int half = 0; half < 2; ++half) {
            const __m512d a = _mm512_castps_pd(next[n + half]), b = _mm512_castps_pd(next[n + half + 2]);
            rows[n + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            rows[n + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    // Lane L of rows[4 g + c] now has column 4 L + c of the rows 4 g to 4 g + 3.
    constexpr int kEven = 0x88, kOdd = 0xDD;  // lanes of a, then of b
    FLASHTILE_UNROLL
    for (int c = 0; c < 4; ++c) {
        const Vec even_low = _mm512_shuffle_f32x4(rows[c], rows[4 + c], kEven);
        const Vec even_high = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], kEven);
        const Vec odd_low = _mm512_shuffle_f32x4(rows[c], rows[4 + c], kOdd);
        const Vec odd_high = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], kOdd);
        rows[c] = _mm512_shuffle_f32x4(even_low, even_high, kEven);
        rows[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, kEven);
        rows[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, kOdd);
        rows[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, kOdd);
    }
}

// Lane n is the sum of x[n]'s lanes. Passes that can do so take one half of both vectors with a blend, for which there
// are more ports than for shuffles. They leave the sums in another order than x's, which is taken in that order.
#define FLASHTILE_SUMS
[[gnu::always_inline]] inline Vec sums_of(Vec (&x)[kLanes]) {
    Vec halves[8], quarters[4], lanes[2];
    FLASHTILE_UNROLL
    for (int n = 0; n < 8; ++n) {
        const int at = n % 2 * 2 + n / 2 % 2 * 8 + n / 4;
        const Vec a = x[at], b = x[at + 4];
        halves[n] = _mm512_mask_blend_ps(0xFF00, a, b) + _mm512_shuffle_f32x4(a, b, 0x4E);
    }
    FLASHTILE_UNROLL
    for (int n = 0; n < 4; ++n) {
        const Vec a = halves[n], b = halves[n + 4];
        quarters[n] = _mm512_mask_blend_ps(0xCCCC, a, b) + _mm512_shuffle_ps(a, b, 0x4E);
    }
    constexpr int kEven = 0x88, kOdd = 0xDD;  // of a, then of b
    FLASHTILE_UNROLL
    for (int n = 0; n < 2; ++n) {
        const Vec a = quarters[n], b = quarters[n + 2];
        lanes[n] = _mm512_shuffle_f32x4(a, b, kEven) + _mm512_shuffle_f32x4(a, b, kOdd);
    }
    return _mm512_shuffle_ps(lanes[0], lanes[1], kEven) + _mm512_shuffle_ps(lanes[0], lanes[1], kOdd);
}

inline WideVec multiply_even(UintVec x, uint32_t m) {
    return reinterpret_cast<WideVec>(
        _mm512_mul_epu32(reinterpret_cast<__m512i>(x), _mm512_set1_epi32(static_cast<int>(m))));
}

[[gnu::always_inline]] inline IntVec load_halves(const uint16_t* row, int64_t count) {
    const auto present = static_cast<__mmask16>(count >= kLanes ? 0xFFFF : (1 << count) - 1);
    return reinterpret_cast<IntVec>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(present, row)));
}

#define FLASHTILE_CONVERTS_VECTORS
inline Vec widen_fp16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_fp16(uint16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

// By way of fp16: with e4m3's exponent in the low bits of its own, fp16 has 2^-8 of the number, of subnormal ones too.
// NaN gets fp16's highest exponent.
#define FLASHTILE_WIDENS_E4M3
inline void widen_e4m3(const uint8_t* p, Vec& first, Vec& second) {
    const __m512i bytes = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(bytes, 7), _mm512_set1_epi16(static_cast<short>(0xBF80)));
    const __mmask32 nan =
        _mm512_testn_epi16_mask(_mm512_xor_si512(halves, _mm512_set1_epi16(0x3F80)), _mm512_set1_epi16(0x7FFF));
    const __m512i x = _mm512_mask_mov_epi16(halves, nan, _mm512_set1_epi16(0x7E00));
    first = _mm512_cvtph_ps(_mm512_castsi512_si256(x));
    second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
