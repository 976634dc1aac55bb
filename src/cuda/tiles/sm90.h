// sm90.h: tiles of Hopper's forward kernel: 64 queries a consumer warpgroup, and a producer warpgroup. Figures are in
// docs/performance.md, "CUDA".
#pragma once

#include "cuda/tiles/tile.h"

namespace flashtile::gpu::sm90 {

// Long sequences without a band.
inline constexpr Tile kForwardLong[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit, and two hide under the third's products"},
    {128, 192, 80, 16, 2, 1, "three consumers; 2 to 5% over 128x128"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 80, 12, 2, 1, "O takes 128 registers a lane; 226 KB of shared memory"},
};

inline constexpr Tile kForward[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit, and two hide under the third's products"},
    {128, 128, 128, 12, 2, 1, "two consumers with 232 registers; masks cost less than with 192 queries"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 80, 12, 2, 1, "O takes 128 registers a lane; 226 KB of shared memory"},
};

// Short sequences, and those whose lengths are not known: smaller tiles leave fewer multiprocessors without work at the
// end, and less of a sequence's last tile empty.
inline constexpr Tile kForwardShort[] = {
    {64, 128, 128, 12, 4, 1, "two consumers"},
    {128, 128, 128, 12, 2, 1, "two consumers"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 80, 12, 2, 1, "O takes 128 registers a lane; 226 KB of shared memory"},
};

// With dropout: which scores are dropped is drawn before the scores are there, and takes registers.
inline constexpr Tile kForwardDropout[] = {
    {64, 192, 80, 16, 4, 1, "three consumers, as without; of 160 registers a lane what is kept takes 20"},
    {128, 128, 128, 12, 2, 1, "two consumers with 232 registers, of which what is kept takes 32"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane, and draws take some"},
};

// dQ is 64 x 64 for each of two consumers; wider ones share the same 64 keys (backward_wide_sm90.h).
inline constexpr Tile kBackward[] = {
    {64, 128, 128, 12, 2, 1, "64 keys a consumer"},
    {128, 64, 128, 12, 2, 1, "dK and dV of 64 keys take 128 registers a lane"},
    {256, 64, 64, 12, 2, 1, "dK of 64 keys takes 128 registers a lane, and so does dV"},
};

}  // namespace flashtile::gpu::sm90
