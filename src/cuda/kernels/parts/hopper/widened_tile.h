// widened_tile.h: a tile of e4m3 as TMA left it to one of 16-bit elements as wgmma reads it, both with the 128-byte
// swizzle; for keys and values in e4m3 under 16-bit queries (sm_90).
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/widen.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Warp `warp` of kWarps does its share of kRows rows, of which the first kColumns columns, a multiple of 64, are
// wanted.
template <Element kElement, int kRows, int kColumns, int kWarps>
__device__ __forceinline__ void widen_tile(unsigned from, unsigned to, int warp) {
    constexpr int kPieces = kColumns / 16;  // of 16 bytes in a row of e4m3, two pieces of what they become
#pragma unroll 2
    for (int n = warp * static_cast<int>(kLanes) + static_cast<int>(lane_id()); n < kRows * kPieces;
         n += kWarps * static_cast<int>(kLanes)) {
        const int row = n / kPieces, piece = n % kPieces, swizzle = row % 8 * 16;
        const uint4 narrow = ptx::load_shared(from + piece / 8 * kRows * kChunkRowBytes + row * kChunkRowBytes +
                                              ((piece % 8 * 16) ^ swizzle));
        const uint2 wide[] = {widen_e4m3<kElement>(narrow.x), widen_e4m3<kElement>(narrow.y),
                              widen_e4m3<kElement>(narrow.z), widen_e4m3<kElement>(narrow.w)};
        const unsigned own = to + piece / 4 * kRows * kChunkRowBytes + row * kChunkRowBytes;
        // Lanes of two chunks write at once; they begin with different halves, which lie in different banks.
        const bool second = piece / 4 % 2 != 0;
        const uint4 low = make_uint4(wide[0].x, wide[0].y, wide[1].x, wide[1].y);
        const uint4 high = make_uint4(wide[2].x, wide[2].y, wide[3].x, wide[3].y);
        const int place = piece % 4 * 32;
        ptx::store_shared(own + ((place + (second ? 16 : 0)) ^ swizzle), second ? high : low);
        ptx::store_shared(own + ((place + (second ? 0 : 16)) ^ swizzle), second ? low : high);
    }
    ptx::fence_async_proxy();
}

}  // namespace flashtile
