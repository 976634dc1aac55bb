// widened_tile.h: a tile of e4m3 as TMA left it to one of 16-bit elements as wgmma reads it, both with the 128-byte
// swizzle; for keys and values in e4m3 under 16-bit queries (sm_90).
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/widen.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Warp `warp` of kWarps does its share of kRows rows, of which the first kColumns columns are wanted. Returns whether
// the lane met a NaN, which only kExact keeps.
template <bool kExact, Element kElement, int kRows, int kColumns, int kWarps>
__device__ __forceinline__ bool widen_rows(unsigned from, unsigned to, int warp) {
    constexpr int kPieces = kColumns / 16;  // of 16 bytes in a row of e4m3, two pieces of what they become
    constexpr int kRowsAtOnce = static_cast<int>(kLanes) / kPieces;
    static_assert(kColumns % 64 == 0 && kPieces <= 8 && kPieces * kRowsAtOnce == kLanes, "");
    constexpr int kSteps = (kRows / kRowsAtOnce + kWarps - 1) / kWarps;
    const int piece = static_cast<int>(lane_id()) % kPieces;
    // Lanes of two chunks write at once; they begin with different halves, which lie in different banks.
    const bool swap = piece >= 4;
    const int first_half = piece % 4 * 32 + (swap ? 16 : 0);
    const unsigned to_chunk = to + piece / 4 * kRows * kChunkRowBytes;
    unsigned nan = 0;
#pragma unroll 3
    for (int step = 0; step < kSteps; ++step) {
        const int row = (step * kWarps + warp) * kRowsAtOnce + static_cast<int>(lane_id()) / kPieces;
        const bool exists = kRows % (kWarps * kRowsAtOnce) == 0 || row < kRows;
        const int swizzle = row % 8 * 16;
        uint4 narrow{};
        if (exists) narrow = ptx::load_shared(from + row * kChunkRowBytes + ((piece * 16) ^ swizzle));
        const unsigned words[] = {swap ? narrow.z : narrow.x, swap ? narrow.w : narrow.y, swap ? narrow.x : narrow.z,
                                  swap ? narrow.y : narrow.w};
        uint2 wide[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            wide[n] = kExact ? widen_e4m3<kElement>(words[n]) : widen_numbers<kElement>(words[n]);
            nan |= nan_among(words[n]);
        }
        const unsigned own = to_chunk + row * kChunkRowBytes + (first_half ^ swizzle);
        if (!exists) continue;
        ptx::store_shared(own, make_uint4(wide[0].x, wide[0].y, wide[1].x, wide[1].y));
        ptx::store_shared(own ^ 16, make_uint4(wide[2].x, wide[2].y, wide[3].x, wide[3].y));
    }
    return nan != 0;
}

// Nothing waits for the question of NaN, since they are rare: then the lane's share is done again.
template <Element kElement, int kRows, int kColumns, int kWarps>
__device__ __forceinline__ void widen_tile(unsigned from, unsigned to, int warp) {
    if (widen_rows<false, kElement, kRows, kColumns, kWarps>(from, to, warp))
        widen_rows<true, kElement, kRows, kColumns, kWarps>(from, to, warp);
    ptx::fence_async_proxy();
}

}  // namespace flashtile
