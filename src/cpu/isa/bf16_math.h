// bf16_math.h: arithmetics on pairs of bf16: what they share, and where the instruction set has a dot product of such
// pairs, Bf16Math and SplitBf16Math, arithmetics on it. tile_math.h has those of tiles.
#pragma once

#include "cpu/isa/fp32_math.h"

#if defined(FLASHTILE_PAIRS)
#include "cpu/isa/bf16_pairs.h"
#if defined(FLASHTILE_BF16_DOT) && defined(__aarch64__)
#include "cpu/isa/bf16_dot_neon.h"
#elif defined(FLASHTILE_BF16_DOT)
#include "cpu/isa/bf16_dot_avx512.h"
#endif
#endif

#if defined(FLASHTILE_BF16_DOT)
namespace flashtile {
inline namespace FLASHTILE_TARGET {

// What meets bf16 words is the sum of two numbers of bf16, which together have 16 digits: all of an fp16 number's.
struct SplitBf16Math : Bf16Math {
    static constexpr int kParts = 2;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
#endif
