// widened_tile.h: a tile of e4m3 as TMA left it to one of 16-bit elements as wgmma reads it, both with the 128-byte
// swizzle; for keys and values in e4m3 under 16-bit queries (sm_90).
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/widen.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Warp `warp` of kWarps does its share of kRows rows, of which the first kColumns columns are wanted.
template <Element kElement, int kRows, int kColumns, int kWarps>
__device__ __forceinline__ void widen_tile(unsigned from, unsigned to, int warp) {
    constexpr int kPieces = kColumns / 16;  // of 16 bytes in a row of e4m3, two pieces of what they become
    constexpr int kRowsAtOnce = static_cast<int>(kLanes) / kPieces;
    static_assert(kColumns % 64 == 0 && kPieces <= 8 && kPieces * kRowsAtOnce == kLanes, "");
    const int piece = static_cast<int>(lane_id()) % kPieces, place = piece % 4 * 32;
    // Lanes of two chunks write at once; they begin with different halves, which lie in different banks.
    const bool swap = piece >= 4;
    const unsigned to_chunk = to + piece / 4 * kRows * kChunkRowBytes;
#pragma unroll 2
    for (int row = warp * kRowsAtOnce + static_cast<int>(lane_id()) / kPieces; row < kRows;
         row += kWarps * kRowsAtOnce) {
        const int swizzle = row % 8 * 16;
        const uint4 narrow = ptx::load_shared(from + row * kChunkRowBytes + ((piece * 16) ^ swizzle));
        const unsigned words[] = {narrow.x, narrow.y, narrow.z, narrow.w};
        uint2 wide[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) wide[n] = widen_numbers<kElement>(words[n]);
        if ((nan_among(words[0]) | nan_among(words[1]) | nan_among(words[2]) | nan_among(words[3])) != 0) {
#pragma unroll
            for (int n = 0; n < 4; ++n) wide[n] = widen_e4m3<kElement>(words[n]);
        }
        const uint4 low = make_uint4(wide[0].x, wide[0].y, wide[1].x, wide[1].y);
        const uint4 high = make_uint4(wide[2].x, wide[2].y, wide[3].x, wide[3].y);
        const unsigned own = to_chunk + row * kChunkRowBytes;
        ptx::store_shared(own + ((place + (swap ? 16 : 0)) ^ swizzle), swap ? high : low);
        ptx::store_shared(own + ((place + (swap ? 0 : 16)) ^ swizzle), swap ? low : high);
    }
    ptx::fence_async_proxy();
}

}  // namespace flashtile
