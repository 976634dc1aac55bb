// element.h: narrow elements to fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace emulator {

inline float from_bf16(unsigned bits) {
    return std::bit_cast<float>(bits << 16);
}

inline float from_fp16(unsigned bits) {
    return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
}

inline float from_element(unsigned bits, bool bf16) {
    return bf16 ? from_bf16(bits & 0xFFFF) : from_fp16(bits);
}

// Sign, four bits of exponent, three of mantissa; one NaN and no infinity.
inline float from_e4m3(unsigned bits) {
    const unsigned size = bits & 0x7F;
    // shifted to where fp32 has them, exponents are 120 too small
    const float x = size == 0x7F ? std::bit_cast<float>(0x7FC00000u) : std::bit_cast<float>(size << 20) * 0x1p120f;
    return (bits & 0x80) != 0 ? -x : x;
}

// The `half`th of a register's two.
inline float half_of(unsigned both, int half, bool bf16) {
    return from_element(both >> 16 * half & 0xFFFF, bf16);
}

// C += A B with A 16 x K, B K x 8. Products of narrow elements are exact in fp32 up to its range, and each is added
// with one rounding to nearest, in the order of k. (A tensor core adds several at once and truncates.)
using Row = float __attribute__((vector_size(32)));
template <int K>
void add_product(Row (&c)[16], const float (&a)[16][K], const Row (&b)[K]) {
    for (int m = 0; m < 16; ++m)
        for (int k = 0; k < K; ++k) c[m] += a[m][k] * b[k];
}

}  // namespace emulator
