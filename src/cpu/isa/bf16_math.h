// bf16_math.h: arithmetics on pairs of bf16: what they share, and where the instruction set has a dot product of such
// pairs, Bf16Math, an arithmetic on it. tile_math.h has those of tiles.
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
