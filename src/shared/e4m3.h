// e4m3.h: numbers of 8 bits, with 4 of exponent and 3 of mantissa, no infinity and one NaN ("e4m3fn"): to and from
// fp32, how a scale is chosen, and the signs of M, the matrix that spreads outliers over a row before rows are
// quantised. In one order of operations, so that all backends give the same bits. Included by the host compiler and by
// NVRTC.
#pragma once

#include "shared/philox.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr float kLargestE4m3 = 448.0f;

FLASHTILE_DEVICE float float_of_bits(unsigned bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
#endif
}
FLASHTILE_DEVICE unsigned bits_of_float(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    unsigned bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

FLASHTILE_DEVICE float e4m3_to_float(unsigned bits) {
    const unsigned magnitude = bits & 0x7Fu, sign = (bits & 0x80u) << 24;
    if (magnitude == 0x7Fu) return float_of_bits(sign | 0x7FC00000u);
    if (magnitude < 8u) return float_of_bits(sign | bits_of_float(static_cast<float>(magnitude) * 0x1p-9f));
    return float_of_bits(sign | ((magnitude << 20) + (120u << 23)));
}

// Rounded to nearest even, at most 448 either way; infinities and NaN become NaN.
FLASHTILE_DEVICE unsigned float_to_e4m3(float x) {
    const unsigned bits = bits_of_float(x), sign = bits >> 24 & 0x80u;
    if ((bits & 0x7FFFFFFFu) >= 0x7F800000u) return sign | 0x7Fu;
    const float positive = float_of_bits(bits & 0x7FFFFFFFu);
    const float magnitude = positive < kLargestE4m3 ? positive : kLargestE4m3;
    // Subnormal: adding 2^14, whose last place is 2^-9, leaves the rounded multiple of 2^-9 in the low bits.
    if (magnitude < 0x1p-6f) return sign | (bits_of_float(magnitude + 0x1p14f) - bits_of_float(0x1p14f));
    const unsigned of = bits_of_float(magnitude);
    return sign | ((of + 0x7FFFFu + (of >> 20 & 1u) - (120u << 23)) >> 20);
}

// The scale of numbers of which this is the largest finite magnitude. Its inverse is finite.
FLASHTILE_DEVICE float e4m3_scale(float largest) {
    if (largest == 0.0f) return 1.0f;
    const float scale = largest / kLargestE4m3;
    return scale > 0x1p-126f ? scale : 0x1p-126f;
}

// M = diag(signs) H / sqrt(n) on each n columns, where n is the largest power of two that divides the row, and H is
// Sylvester's Hadamard matrix. A row x of n numbers becomes x M by: signs; then for half = 1, 2, 4, .. the sums and
// differences of the numbers at c and c + half, for all c whose bit `half` is 0; then the factor.
//
// Packing of the signs, which never changes: key = { low, high 32 bits of the seed }, counter = { column / 128, 0, 0,
// "Hada" }; column c is negative where bit c % 32 of output word c / 32 % 4 is 1.
struct HadamardSigns {
    unsigned key0, key1;

    FLASHTILE_DEVICE static HadamardSigns make(unsigned long long seed) {
        return {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
    }
    // Of columns [128 n, 128 n + 128).
    FLASHTILE_DEVICE Philox draw(unsigned n) const { return philox4x32<7>({{n, 0, 0, 0x61646148u}}, key0, key1); }
    FLASHTILE_DEVICE bool negative(unsigned column) const {
        return (draw(column / 128).word[column / 32 % 4] >> column % 32 & 1) != 0;
    }
};

FLASHTILE_DEVICE int hadamard_size(int columns) {
    return columns & -columns;
}
// 1 / sqrt(size), of a power of two.
FLASHTILE_DEVICE float hadamard_factor(int size) {
    float factor = 1.0f;
    for (; size >= 4; size /= 4) factor *= 0.5f;
    return size == 2 ? factor * 0.70710678118654752f : factor;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
