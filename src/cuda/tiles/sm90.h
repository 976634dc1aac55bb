// sm90.h: the tiles of Hopper's forward and backward kernels. In forward each consumer warpgroup has 64 queries, and
// one more warpgroup is the producer. The measurements are in docs/performance/cuda.md.
#pragma once

#include "cuda/tiles/tile.h"

namespace flashtile::gpu::sm90 {

// For long sequences without a band.
inline constexpr Tile kForwardLong[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit, and two hide under the third's products"},
    {128, 192, 80, 16, 2, 1, "three consumers; 2 to 5% over 128x128"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane, and leaves by halves; 225 KB of shared memory"},
};

inline constexpr Tile kForward[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit, and two hide under the third's products"},
    {128, 128, 128, 12, 2, 1, "two consumers with 232 registers; masks cost less than with 192 queries"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane, and leaves by halves; 225 KB of shared memory"},
};

// For short sequences, and for those whose lengths are not known. With smaller tiles fewer multiprocessors are without
// work at the end, and less of a sequence's last tile is empty.
inline constexpr Tile kForwardShort[] = {
    {64, 64, 64, 8, 3, 3,
     "one consumer, three blocks share a multiprocessor: one's start or end under the others' products"},
    {128, 128, 128, 12, 2, 1, "two consumers"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane, and leaves by halves; 225 KB of shared memory"},
};

// For few queries, which are bound by the memory that K and V are read from: up to 64 rows of a tile, where O leaves
// one consumer registers; and more.
inline constexpr Tile kForwardFew[] = {
    {64, 64, 128, 8, 2, 2, "one consumer, two blocks share a multiprocessor: 128 KB of K and V on their way"},
    {128, 64, 64, 8, 2, 2, "one consumer, two blocks share a multiprocessor: 128 KB of K and V on their way"},
};
// The latter serve caches too, whose options take registers.
inline constexpr Tile kForwardSome[] = {
    {64, 128, 64, 12, 4, 1, "64 KB of K and V on their way"},
    {128, 128, 64, 12, 4, 1, "128 KB of K and V on their way"},
    {192, 128, 64, 12, 3, 1, "144 KB of K and V on their way"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane"},
};

// For many queries on a cache.
inline constexpr Tile kForwardCache[] = {
    {64, 128, 128, 12, 3, 1, "two consumers"},
    {128, 128, 128, 12, 2, 1, "two consumers"},
    {192, 128, 80, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane"},
};

// For dropout. A fourth warpgroup draws the random numbers. It leaves 208 registers a lane for each of two consumers.
inline constexpr Tile kForwardDropout[] = {
    {64, 128, 128, 16, 4, 1, "two consumers"},
    {128, 128, 128, 16, 2, 1, "two consumers"},
    {192, 128, 80, 16, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane, which leaves none for a fourth warpgroup"},
};

// For a mask. Registers hold the mask of the next one or two blocks of keys until their scores are computed.
inline constexpr Tile kForwardMask[] = {
    {64, 128, 128, 12, 4, 1, "two consumers; 1.10 of 192x64's speed, 1.22 of 128x64's"},
    {128, 192, 64, 16, 3, 1, "three consumers; 1.22 of 128x64's speed"},
    {256, 128, 64, 12, 2, 1, "O takes up to 128 registers a lane"},
};

// For a bias in the inputs' type. Registers hold it as they hold a mask, and it takes twice as many.
inline constexpr Tile kForwardBias[] = {
    {64, 192, 64, 16, 4, 1, "three consumers; 1.04 of 128x128's speed, 1.18 of 128x64's"},
    {128, 128, 64, 12, 4, 1, "two consumers; 1.25 of 192x64's speed"},
    {256, 128, 64, 12, 2, 1, "O takes up to 128 registers a lane"},
};

// For a bias that TMA loads. It takes shared memory instead of registers.
inline constexpr Tile kForwardBiasMapped[] = {
    {64, 192, 128, 16, 3, 1, "three consumers; 1.04 of three blocks a multiprocessor, 1.23 of 128x128's speed"},
    {128, 128, 128, 12, 2, 1, "two consumers; 1.05 of 192x64's speed, 1.22 of 128x64's"},
    {256, 128, 64, 12, 2, 1, "O takes up to 128 registers a lane"},
};

// For a bias in fp32, or for two options that take registers.
inline constexpr Tile kForwardBiasAndMore[] = {
    {128, 128, 64, 12, 4, 1, "two consumers"},
    {256, 128, 64, 12, 2, 1, "O takes up to 128 registers a lane"},
};

inline constexpr Tile kForwardBiasOrMaskDropout[] = {
    {128, 128, 64, 16, 4, 1, "two consumers"},
    {192, 128, 64, 16, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane, which leaves none for a fourth warpgroup"},
};

// For the user's functions, which take registers. A mask function's map counts blocks of this size.
inline constexpr Tile kForwardFunctions[] = {
    {64, 64, 128, 8, 2, 2, "one consumer, two blocks share a multiprocessor; 1.01 to 1.17 of 128x128's speed"},
    {128, 128, 128, 12, 2, 1, "two consumers, whose registers hold what functions compute"},
    {192, 128, 64, 12, 2, 1, "O takes 96 registers a lane"},
};
// For e4m3. Products are twice as fast, and exponentials are not. Transposed V has stages of its own. For long
// sequences without a band:
inline constexpr Tile kForwardE4m3Long[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit"},
    {128, 192, 96, 16, 2, 1, "three consumers; 1.04 of 128x192's speed, 1.015 of 192x64's"},
    {128, 128, 192, 12, 2, 1, "where groups of 64 keys share scales; 1.01 of 192x64's speed"},
    {192, 128, 128, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 96, 12, 2, 1, "O takes 128 registers a lane"},
    {256, 128, 64, 12, 2, 1, "where groups of 64 keys share scales"},
};

inline constexpr Tile kForwardE4m3[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit"},
    {128, 192, 64, 16, 3, 1, "three consumers; at 4k 1.03 of 128x192's speed causal, 1.09 full, at 1k full 1.13"},
    {192, 128, 128, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 96, 12, 2, 1, "O takes 128 registers a lane"},
    {256, 128, 64, 12, 2, 1, "where groups of 64 keys share scales"},
};

// The same with a band over short sequences, and for those whose lengths are not known.
inline constexpr Tile kForwardE4m3Short[] = {
    {64, 192, 128, 16, 3, 1, "three consumers: exponentials are the limit"},
    {128, 128, 128, 12, 2, 1, "two consumers; at 1k 1.09 of 192x64's speed"},
    {192, 128, 128, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 96, 12, 2, 1, "O takes 128 registers a lane"},
    {256, 128, 64, 12, 2, 1, "where groups of 64 keys share scales"},
};
// The same with a window, whose second edge takes registers: larger tiles spill, and ptxas serialises their products.
inline constexpr Tile kForwardE4m3Window[] = {
    {64, 128, 128, 12, 3, 1, "two consumers, which have registers for both edges"},
    {128, 128, 128, 12, 2, 1, "two consumers, which have registers for both edges"},
    {192, 128, 128, 12, 2, 1, "O takes 96 registers a lane"},
    {256, 128, 64, 12, 2, 1, "O takes 128 registers a lane"},
};

// For e4m3 keys and values under 16-bit queries. A stage has them as they come and as they are multiplied.
inline constexpr Tile kForwardE4m3Keys[] = {
    {64, 128, 64, 12, 4, 1, "two consumers; 32 KB of K and V on their way"},
    {128, 128, 64, 12, 3, 1, "two consumers; 48 KB of K and V on their way"},
};

// The same for few queries: seven warps widen for one consumer.
inline constexpr Tile kForwardE4m3KeysFew[] = {
    {128, 64, 128, 12, 2, 1, "one consumer; 0.90 of the time that 64x64 with four stages takes"},
    {256, 64, 64, 12, 2, 1, "one consumer; 64 KB of K and V on their way"},
};

// For a mask function alone. Narrow heads have tiles of the least block that is worth being hidden.
inline constexpr Tile kForwardMaskFunction[] = {
    {64, 64, 64, 8, 3, 3, "one consumer, three blocks share a multiprocessor; 0.97 to 1.20 of 128x128's speed"},
    {128, 128, 128, 12, 2, 1, "two consumers, whose registers hold what functions compute"},
    {192, 128, 64, 12, 2, 1, "O takes 96 registers a lane"},
};

// The same over long sequences of which it hides little.
inline constexpr Tile kForwardMaskFunctionLong[] = {
    {64, 192, 128, 16, 3, 1, "three consumers; 1.08 to 1.15 of 64x64's speed"},
    {128, 128, 128, 12, 2, 1, "two consumers, whose registers hold what functions compute"},
    {192, 128, 64, 12, 2, 1, "O takes 96 registers a lane"},
};

// For lists of blocks that 128 queries and keys do not divide: of 64 x 64 a tile is a block.
inline constexpr Tile kForwardNarrowLists[] = {
    {64, 64, 64, 8, 3, 3, "one consumer, three blocks share a multiprocessor"},
    {128, 64, 64, 8, 2, 2, "one consumer, two blocks share a multiprocessor"},
    {192, 128, 64, 12, 2, 1, "O takes 96 registers a lane"},
};

// For latent heads, whose V is the first columns of K. Both consumers work on the same 64 rows.
inline constexpr Tile kLatentForward[] = {
    {576, 64, 64, 12, 2, 1, "Q and two blocks of keys take 221 KB of shared memory, and O all registers"},
};

// For backward. Each of two consumers has a share of the keys.
inline constexpr Tile kBackward[] = {
    {64, 128, 128, 12, 2, 1, "64 keys a consumer"},
    {128, 64, 128, 12, 2, 1, "dK and dV of 64 keys take 128 registers a lane"},
    {192, 64, 128, 12, 2, 1, "dK and dV of 64 keys take 160 registers a lane"},
};

// Both consumers work on the same 64 keys (backward_wide_sm90.h, backward_pair_sm90.h).
inline constexpr Tile kBackwardWide[] = {
    {256, 64, 64, 12, 2, 1, "dK of 64 keys takes 128 registers a lane, and so does dV"},
};

}  // namespace flashtile::gpu::sm90
