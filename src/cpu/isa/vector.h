// vector.h: one vector of the instruction set that this unit is compiled for, in GCC/clang vector extensions, with
// intrinsics where an instruction does more than the extension can say. Everything lies in the namespace of the unit's
// instruction set (FLASHTILE_TARGET), and no std template is instantiated here: a weak symbol compiled for AVX-512 must
// never reach an old CPU through the linker.
#pragma once

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define FLASHTILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FLASHTILE_UNROLL _Pragma("GCC unroll 32")
#endif

// The unit is compiled for tiles; clang 14 has another name for it than g++ and later clangs.
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#define FLASHTILE_TILES
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// A panel is W = 2 vectors of queries side by side: the unit in which queries are transposed and tiled.
constexpr int kPanel = 2 * kLanes;

using Vec = float __attribute__((vector_size(4 * kLanes)));
using IntVec = int32_t __attribute__((vector_size(4 * kLanes)));

inline Vec load(const float* p) {
    Vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, Vec v) {
    memcpy(p, &v, sizeof v);
}
inline Vec broadcast(float x) {
    return x - Vec{};
}

// x as it is, rounded: keeps the compiler from making a fused operation of the product that gave it and the sum that it
// goes into.
[[gnu::always_inline]] inline Vec rounded(Vec x) {
#if defined(__AVX512F__)
    asm("" : "+v"(x));
#elif defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#endif
    return x;
}

inline IntVec broadcast_int(int32_t x) {
    return x - IntVec{};
}

// The greater of each pair; b where a is NaN, so that a NaN score never becomes the maximum of its row.
inline Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return a > b ? a : b;
#endif
}

// False where a lane is NaN.
inline bool all_one(Vec x) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(x, broadcast(1.0f), _CMP_EQ_OQ) == 0xFFFF;
#else
    bool all = true;
    for (int lane = 0; lane < kLanes; ++lane) all &= x[lane] == 1.0f;
    return all;
#endif
}

// Whether a comparison holds in any lane.
inline bool any(IntVec lanes) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(lanes), reinterpret_cast<__m512i>(lanes)) != 0;
#else
    int32_t some = 0;
    for (int lane = 0; lane < kLanes; ++lane) some |= lanes[lane];
    return some != 0;
#endif
}

inline Vec lane_numbers() {
    Vec v;
    FLASHTILE_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) v[lane] = static_cast<float>(lane);
    return v;
}

#if defined(__AVX512F__)
// 2^f on [0, 1), 1 exactly at 0.
constexpr int kExponentialDegree = 5;
constexpr float kExponential[kExponentialDegree + 1] = {
    1.0f, 0.6931510675154104f, 0.24016565110269236f, 0.05579930072801425f, 0.009014884570459408f, 0.00186895633690767f};
#endif

// 2^x for x <= 0 (and small positive x): relative error 1.9e-7, exactly 1 at 0 (an error there would compound over the
// rescales), 0 under 2^-126, NaN at NaN. Minimax polynomials of degree 5 with p(0) = 1, on [0, 1) where vscalefps
// rounds x down by itself, else on [-1/2, 1/2].
inline Vec exp2(Vec x) {
#if defined(__AVX512F__)
    const Vec f = _mm512_reduce_ps(x, 1);  // x - floor(x), 0 at -inf
    Vec p = broadcast(kExponential[kExponentialDegree]);
    FLASHTILE_UNROLL
    for (int n = kExponentialDegree; n-- > 0;) p = p * f + kExponential[n];
    // 0 where it would be subnormal, as the other way: on many CPUs such a number costs as much as a hundred others,
    // and peaked rows are full of them
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, broadcast(-126.0f), _CMP_NLT_UQ), p, x);
#else
    // Rounding by adding 1.5 * 2^23 leaves round(x) in the low bits. The clamp keeps those bits meaningful; at -127 the
    // exponent field below is 0, which makes the factor exactly 0.
    x = max(broadcast(-127.0f), x);
    const Vec magic = broadcast(12582912.0f);
    const Vec shifted = x + magic;
    const Vec f = x - (shifted - magic);
    Vec p = broadcast(0.001326472731307149f);
    p = p * f + 0.009671512991189957f;
    p = p * f + 0.05550733581185341f;
    p = p * f + 0.24022242426872253f;
    p = p * f + 0.6931470036506653f;
    p = p * f + 1.0f;
    const IntVec exponent = (reinterpret_cast<IntVec>(shifted) - 0x4B400000 + 127) << 23;
    return p * reinterpret_cast<Vec>(exponent);
#endif
}

// tanh: an odd polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
inline Vec tanh(Vec x) {
    const Vec positive = x < 0.0f ? -x : x;
    const Vec capped = positive > 10.0f ? broadcast(10.0f) : positive;  // tanh(10) rounds to 1; NaN stays
    const Vec e = exp2(capped * -2.8853900817779268f);                  // e^-2x
    const Vec far = (1.0f - e) / (1.0f + e);
    const Vec z = x * x;
    Vec p = broadcast(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const Vec near = p * z * x + x;
    return positive < 0.625f ? near : (x < 0.0f ? -far : far);
}

// The low or high halves of a and b, interleaved: a0 b0 a1 b1 ..
inline Vec interleave_low(Vec a, Vec b) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__)
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
inline Vec interleave_high(Vec a, Vec b) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Transposes kLanes x kLanes. Each pass interleaves row n with row n + half, which rotates the (row, column) address by
// one bit; after log2(kLanes) passes rows and columns have changed places.
inline void transpose(Vec (&rows)[kLanes]) {
    FLASHTILE_UNROLL
    for (int pass = 1; pass < kLanes; pass *= 2) {
        Vec next[kLanes];
        FLASHTILE_UNROLL
        for (int n = 0; n < kLanes / 2; ++n) {
            next[2 * n] = interleave_low(rows[n], rows[n + kLanes / 2]);
            next[2 * n + 1] = interleave_high(rows[n], rows[n + kLanes / 2]);
        }
        FLASHTILE_UNROLL
        for (int n = 0; n < kLanes; ++n) rows[n] = next[n];
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
