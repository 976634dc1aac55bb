// extensions.h: primitives in the vector extensions of GCC and clang, at any width. An instruction set's file (avx2.h,
// four_lanes.h, ..) uses them where it has no better instruction.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#define FLASHTILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FLASHTILE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

template <class V>
inline bool all_lanes_one(V x) {
    bool all = true;
    for (unsigned lane = 0; lane < sizeof(V) / 4; ++lane) all &= x[lane] == 1.0f;
    return all;
}

template <class I>
inline bool any_lane(I lanes) {
    int32_t some = 0;
    for (unsigned lane = 0; lane < sizeof(I) / 4; ++lane) some |= lanes[lane];
    return some != 0;
}

// 2^x for x >= -127, and NaN at NaN: a minimax polynomial of degree 5 on [-1/2, 1/2] with p(0) = 1.
template <class I, class V>
inline V exp2_by_rounding(V x) {
    // Adding 1.5 * 2^23 leaves round(x) in the low bits. At -127 the exponent field below is 0, which makes the factor
    // exactly 0.
    const V magic = 12582912.0f - V{};
    const V shifted = x + magic;
    const V f = x - (shifted - magic);
    V p = 0.001326472731307149f - V{};
    p = p * f + 0.009671512991189957f;
    p = p * f + 0.05550733581185341f;
    p = p * f + 0.24022242426872253f;
    p = p * f + 0.6931470036506653f;
    p = p * f + 1.0f;
    const I exponent = (reinterpret_cast<I>(shifted) - 0x4B400000 + 127) << 23;
    return p * reinterpret_cast<V>(exponent);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
