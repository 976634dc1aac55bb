// bf16_pairs.h: what arithmetics on pairs of bf16 share. The instruction set's file has
//   load_halves(row, count)   kLanes words, each an element of 16 bits; zeros from the count-th on
#pragma once

#include "cpu/isa/fp32_math.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct Bf16Pairs {
    using Scalar = uint32_t;  // two bf16, the first of them in the low half
    static constexpr int kPack = 2;
    static constexpr int kParts = 1;

    // Stores words of an operand. In arithmetics that have low parts, those go to dst + low.
    static void store_words(Scalar* dst, int64_t /*low*/, IntVec words) { memcpy(dst, &words, sizeof words); }
};

// dst[col] = the word (even[col], odd[col]); low parts go to dst[low + col]. A row that is null counts as zeros. Zeros
// fill the last vector.
template <class Math>
inline void interleave(const uint16_t* even, const uint16_t* odd, int64_t cols, uint32_t* dst, int64_t low) {
    for (int64_t c = 0; c < cols; c += kLanes) {
        const auto halves = [&](const uint16_t* row) {
            if (row == nullptr) return IntVec{};
            return load_halves(row + c, cols - c);
        };
        Math::store_words(dst + c, low, halves(even) | halves(odd) << 16);
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
