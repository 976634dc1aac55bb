// element.h: 16-bit elements to fp32.
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

// The `half`th of a register's two.
inline float half_of(unsigned both, int half, bool bf16) {
    return from_element(both >> 16 * half & 0xFFFF, bf16);
}

// C += A B with A 16 x 16, B 16 x 8. Products of 16-bit elements are exact in fp32 up to its range, and each is added
// with one rounding to nearest, in the order of k. (A tensor core adds several at once and truncates.)
using Row = float __attribute__((vector_size(32)));
inline void add_product(Row (&c)[16], const float (&a)[16][16], const Row (&b)[16]) {
    for (int m = 0; m < 16; ++m)
        for (int k = 0; k < 16; ++k) c[m] += a[m][k] * b[k];
}

}  // namespace emulator
