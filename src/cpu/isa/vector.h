// vector.h: one vector of the instruction set that this unit is compiled for, and what is made of its primitives. Each
// instruction set's file has:
//   kLanes                      floats of a vector
//   kRows                       rows of the tile of C that a product keeps in registers: kRows x 2 vectors, and
//                               room for operands
//   Vec, IntVec, UintVec, WideVec   vectors of float, int32, uint32; uint64, of the same size
//   rounded(x)                  x as it is, rounded: keeps the compiler from fusing the product that gave x
//                               with the sum that x goes into
//   max(a, b)                   the greater of each pair; b where a is NaN, so that a NaN score never becomes
//                               the maximum of its row
//   all_one(x), any(lanes)      whether all lanes are 1 (false where one is NaN); whether a comparison holds in any
//   lane exp2(x)                2^x for x <= 0 (and small positive x): relative error 1.9e-7, exactly 1 at 0 (an
//                               error there would compound over the rescales), 0 under 2^-126, NaN at NaN
//   interleave_low, _high       the low or high halves of a and b, interleaved: a0 b0 a1 b1 ..
//   multiply_even(x, m)         the 64-bit products of the even elements of x with m
//   fp16_to_float, float_to_fp16    one element, rounded to nearest even
// and where instructions convert whole vectors, FLASHTILE_CONVERTS_VECTORS and
//   widen_fp16(p), store_fp16(p, x)   kLanes elements of fp16 to a vector, and a vector to them
// and where it has a better way than the one below, FLASHTILE_TRANSPOSES and transpose(rows), FLASHTILE_SUMS and
// sums_of(x), FLASHTILE_WIDENS_E4M3 and widen_e4m3(p, first, second), 2 kLanes elements of e4m3 to vectors of 2^-8 of
// them.
// counted.h has them without their meaning, for a unit that only counts what moves.
// src/cpu/kernels/README.md has the rules that hold here: all lies in FLASHTILE_TARGET, and no std template is used.
#pragma once

#if defined(FLASHTILE_COUNTED)
#include "cpu/isa/counted.h"
#elif defined(__AVX512F__)
#include "cpu/isa/avx512.h"
#elif defined(__AVX2__)
#include "cpu/isa/avx2.h"
#elif defined(__aarch64__)
#include "cpu/isa/aarch64.h"
#else
#include "cpu/isa/portable.h"
#endif

// What else the unit is compiled for: pairs of 16-bit elements, their dot product, and tiles. (clang 14 has another
// name for the last than g++ and later clangs.)
#if defined(__AVX512F__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define FLASHTILE_PAIRS
#endif
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define FLASHTILE_BF16_DOT
#endif
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#define FLASHTILE_TILES
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// A panel is W = 2 vectors of queries side by side: the unit in which queries are transposed and tiled.
constexpr int kPanel = 2 * kLanes;

inline Vec load(const float* p) {
    Vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, Vec v) {
    memcpy(p, &v, sizeof v);
}
// kLanes elements of bf16.
inline Vec widen_bf16(const uint16_t* p) {
    using Halves = uint16_t __attribute__((vector_size(kLanes * 2)));
    Halves halves;
    memcpy(&halves, p, sizeof halves);
    return reinterpret_cast<Vec>(__builtin_convertvector(halves, UintVec) << 16);
}
#if !defined(FLASHTILE_FOLDS_LANES)
inline float largest_lane(Vec x) {
    float largest = x[0];
    for (int lane = 1; lane < kLanes; ++lane)
        if (x[lane] > largest) largest = x[lane];
    return largest;
}
inline float sum_of_lanes(Vec x) {
    float sum = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) sum += x[lane];
    return sum;
}
#endif
#if !defined(FLASHTILE_WIDENS_E4M3)
inline void widen_e4m3(const uint8_t* p, Vec& first, Vec& second) {
    const auto widened = [](const uint8_t* from) {
        using Bytes = uint8_t __attribute__((vector_size(kLanes)));
        Bytes bytes;
        memcpy(&bytes, from, sizeof bytes);
        const UintVec bits = __builtin_convertvector(bytes, UintVec), magnitude = bits & 0x7Fu;
        const Vec normal = reinterpret_cast<Vec>((magnitude << 20) + (112u << 23));
        const Vec subnormal = __builtin_convertvector(reinterpret_cast<IntVec>(magnitude), Vec) * 0x1p-17f;
        const Vec finite = magnitude < 8u ? subnormal : normal;
        const Vec x = magnitude == 0x7Fu ? from_bits(0x7FC00000u) - Vec{} : finite;
        return reinterpret_cast<Vec>((reinterpret_cast<UintVec>(x) & 0x7FFFFFFFu) | (bits & 0x80u) << 24);
    };
    first = widened(p);
    second = widened(p + kLanes);
}
#endif
inline Vec broadcast(float x) {
    return x - Vec{};
}
inline IntVec broadcast_int(int32_t x) {
    return x - IntVec{};
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

#if !defined(FLASHTILE_TRANSPOSES)
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
#endif

constexpr float kE4m3Unit = 256.0f;  // of what widen_e4m3 gives

#if !defined(FLASHTILE_SUMS)
// Lane n is the sum of x[n]'s lanes. Each pass interleaves vector n with vector n + half and adds the halves, which
// makes of two vectors one, with as many partial sums of each.
[[gnu::always_inline]] inline Vec sums_of(Vec (&x)[kLanes]) {
    FLASHTILE_UNROLL
    for (int half = kLanes / 2; half > 0; half /= 2) {
        FLASHTILE_UNROLL
        for (int n = 0; n < half; ++n) x[n] = interleave_low(x[n], x[n + half]) + interleave_high(x[n], x[n + half]);
    }
    return x[0];
}
#endif

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
