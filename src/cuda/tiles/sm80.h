// sm80.h: the tiles of the mma.sync kernels, which run on every GPU since Ampere. Where a line says so, the tile was
// measured (docs/performance/cuda.md); the others are what shared memory and registers allow.
#pragma once

#include "cuda/tiles/tile.h"

namespace flashtile::gpu::sm80 {

// For fp16 and bf16 with no option but a band.
inline constexpr Tile kForward[] = {
    {64, 128, 64, 4, 2, 2, "32 queries a warp halve what it reads of K and V; two blocks hide each other's waits"},
    {128, 128, 64, 4, 2, 2, "as for d = 64; 232 registers of O and S a lane are just what there is"},
    {128, 128, 32, 4, 2, 2, "shared memory under 208 KB a multiprocessor"},
    {128, 64, 32, 4, 2, 2, "shared memory of 100 KB a multiprocessor"},
    {256, 128, 64, 8, 2, 1, "O alone takes 128 registers a lane at 16 queries a warp"},
    {256, 128, 32, 8, 2, 1, "shared memory under 204 KB a block"},
    {256, 128, 16, 8, 2, 1, "shared memory under 136 KB a block"},
    {576, 128, 16, 8, 2, 1, "the widest Q and K; 64x32 would spill 200 bytes"},
    {576, 64, 16, 4, 2, 1, "shared memory under 180 KB a block"},
    {576, 32, 16, 2, 2, 1, "shared memory under 117 KB a block"},
};

// For packed batches, whose lengths and offsets take registers.
inline constexpr Tile kForwardPacked[] = {
    {64, 128, 64, 4, 2, 2, "as for dense batches"},
    {128, 128, 32, 4, 2, 2, "128x64 would spill 104 bytes"},
    {128, 64, 32, 4, 2, 2, "shared memory of 100 KB a multiprocessor"},
    {256, 128, 64, 8, 2, 1, "as for dense batches"},
    {256, 128, 32, 8, 2, 1, "shared memory under 204 KB a block"},
    {256, 128, 16, 8, 2, 1, "shared memory under 136 KB a block"},
    {576, 128, 16, 8, 2, 1, "the widest Q and K; 64x32 would spill 200 bytes"},
    {576, 64, 16, 4, 2, 1, "shared memory under 180 KB a block"},
    {576, 32, 16, 2, 2, 1, "shared memory under 117 KB a block"},
};

// For options that take registers: 16 queries a warp.
inline constexpr Tile kForwardWithOptions[] = {
    {128, 64, 64, 4, 2, 2, "options take registers"},
    {128, 64, 32, 4, 2, 2, "shared memory under 105 KB a block"},
    {256, 128, 32, 8, 2, 1, "options take registers"},
    {256, 128, 16, 8, 2, 1, "shared memory under 136 KB a block"},
    {576, 128, 16, 8, 2, 1, "the widest Q and K; 64x32 would spill 200 bytes"},
    {576, 64, 16, 4, 2, 1, "shared memory under 180 KB a block"},
    {576, 32, 16, 2, 2, 1, "shared memory under 117 KB a block"},
};

// For few rows, which read K and V once: a warp a thread block, and as much of K and V on its way as a multiprocessor
// has room for.
inline constexpr int kFewRows = 16;
inline constexpr Tile kForwardFew[] = {
    {64, 16, 64, 1, 2, 4, "16 rows a warp; 36 KB of K and V on their way for each of four thread blocks"},
    {64, 16, 64, 1, 2, 2, "shared memory of 100 KB a multiprocessor"},
    {128, 16, 64, 1, 2, 3, "as for d = 64; 70 KB each for three"},
    {128, 16, 64, 1, 2, 2, "shared memory under 225 KB a multiprocessor"},
    {128, 16, 32, 1, 2, 2, "shared memory of 100 KB a multiprocessor"},
    {256, 16, 32, 1, 2, 2, "twice as wide"},
    {256, 16, 16, 1, 2, 2, "shared memory of 100 KB a multiprocessor"},
    {576, 16, 16, 1, 2, 2, "the widest Q and K"},
    {576, 16, 16, 1, 2, 1, "shared memory of 100 KB a multiprocessor"},
};
inline constexpr Tile kForwardFewFp32[] = {
    {128, 16, 16, 1, 2, 4, "FMAs on fragments"},  {128, 16, 16, 1, 2, 2, "shared memory of 100 KB a multiprocessor"},
    {256, 16, 16, 1, 2, 2, "twice as wide"},      {256, 16, 16, 1, 2, 1, "shared memory of 100 KB a multiprocessor"},
    {576, 16, 16, 1, 2, 1, "the widest Q and K"}, {576, 16, 16, 1, 1, 1, "shared memory under 120 KB a block"},
};

inline constexpr Tile kForwardFp32[] = {
    {64, 64, 16, 4, 2, 2, "FMAs on fragments; 64x32 would spill 36 bytes"},
    {128, 64, 16, 4, 2, 1, "twice as wide"},
    {256, 64, 16, 4, 2, 1, "twice as wide again"},
    {256, 32, 16, 2, 2, 1, "shared memory under 134 KB a block"},
    {576, 32, 16, 2, 2, 1, "the widest Q and K"},
    {576, 32, 16, 2, 1, 1, "shared memory under 166 KB a block"},
    {576, 16, 16, 1, 1, 1, "shared memory under 120 KB a block"},
};

inline constexpr Tile kBackward[] = {
    {64, 128, 128, 8, 2, 1, "dK, dV and S of 128 keys in the registers of 8 warps"},
    {64, 64, 64, 8, 2, 1, "shared memory under 184 KB a block"},
    {128, 64, 128, 8, 2, 1, "dK and dV alone take 128 registers a lane"},
    {128, 64, 64, 8, 2, 1, "shared memory under 178 KB a block"},
    {128, 32, 64, 4, 2, 1, "shared memory under 124 KB a block"},
    {128, 32, 32, 4, 2, 1, "shared memory under 80 KB a block"},
    {256, 64, 64, 8, 2, 1, "twice as wide"},
    {256, 64, 64, 8, 1, 1, "shared memory under 218 KB a block; 32x64 with 4 warps would spill 2.5 KB"},
    {192, 32, 64, 8, 2, 1, "shared memory under 151 KB a block"},
    {192, 32, 64, 8, 1, 1, "shared memory under 111 KB a block"},
    {256, 32, 32, 4, 1, 1, "as little as there can be"},
};

// For packed batches and for options.
inline constexpr Tile kBackwardWithOptions[] = {
    {64, 64, 128, 8, 2, 1, "128x128 would spill 36 bytes"},
    {64, 64, 64, 8, 2, 1, "shared memory under 116 KB a block"},
    {128, 64, 128, 8, 2, 1, "as without options"},
    {128, 64, 64, 8, 2, 1, "shared memory under 178 KB a block"},
    {128, 32, 64, 4, 2, 1, "shared memory under 124 KB a block"},
    {128, 32, 32, 4, 2, 1, "shared memory under 80 KB a block"},
    {256, 64, 64, 8, 2, 1, "as without options"},
    {256, 32, 64, 8, 2, 1, "shared memory under 218 KB a block; 64x64 would spill 270 bytes"},
    {192, 32, 64, 8, 1, 1, "shared memory under 142 KB a block"},
    {256, 32, 32, 4, 1, 1, "as little as there can be"},
};

// For softcap and score functions, whose derivative takes registers beside S and dP, and for lists of blocks.
inline constexpr Tile kBackwardSoftcap[] = {
    {64, 64, 128, 8, 2, 1, "as for other options"},
    {128, 64, 64, 8, 2, 1, "64x128 would spill 224 bytes"},
    {128, 32, 64, 4, 2, 1, "shared memory under 124 KB a block"},
    {128, 32, 32, 4, 2, 1, "shared memory under 80 KB a block"},
    {256, 64, 64, 8, 2, 1, "twice as wide"},
    {256, 32, 64, 8, 2, 1, "shared memory under 218 KB a block; 64x64 would spill 270 bytes"},
    {192, 32, 64, 8, 1, 1, "shared memory under 142 KB a block"},
    {256, 32, 32, 4, 1, 1, "as little as there can be"},
};

inline constexpr Tile kBackwardFp32[] = {
    {64, 32, 64, 4, 2, 1, "FMAs on fragments"},
    {128, 32, 32, 4, 2, 1, "twice as wide"},
    {128, 32, 32, 4, 1, 1, "shared memory under 112 KB a block"},
    {256, 64, 32, 8, 1, 1, "twice as wide again; 32x32 with 4 warps would spill 1 KB"},
    {256, 32, 32, 4, 1, 1, "shared memory under 214 KB a block"},
};

// For dbias. Shared memory holds one block each of K, V, Q and dO at a time.
inline constexpr Tile kBackwardBias[] = {
    {128, 64, 64, 8, 1, 1, "S, dP and the sum of one tile"},
    {128, 32, 32, 4, 1, 1, "shared memory under 90 KB a block"},
    {256, 64, 64, 8, 1, 1, "twice as wide"},
    {256, 32, 32, 4, 1, 1, "shared memory under 155 KB a block"},
};

inline constexpr Tile kBackwardBiasFp32[] = {
    {128, 32, 32, 4, 1, 1, "FMAs on fragments"},
    {256, 32, 32, 4, 1, 1, "twice as wide"},
};

// How many columns of O the registers of a thread block hold.
inline constexpr int kMostValueColumns = 256;
inline constexpr int kMostValueColumnsFp32 = 128;

}  // namespace flashtile::gpu::sm80
