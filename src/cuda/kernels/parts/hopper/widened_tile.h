// widened_tile.h: a tile of e4m3 as TMA left it to one of 16-bit elements as wgmma reads it, both with the 128-byte
// swizzle; for keys and values in e4m3 under 16-bit queries (sm_90).
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/widen.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Warp `warp` of kWarps does its share of kRows rows, of which the first kColumns columns are wanted. A step is 8 rows,
// with four lanes each, and one chunk of `to`, which is half a chunk of `from`. Of odd rows it is the next chunk, so
// that neither loads nor stores of a quarter of the warp meet in a bank: the swizzle moves an odd row's 16 bytes to the
// other half of 32. (Of three chunks some do.) All of a lane's loads are on their way before the first one is awaited.
template <Element kElement, int kRows, int kColumns, int kWarps>
__device__ __forceinline__ void widen_tile(unsigned from, unsigned to, int warp) {
    constexpr int kChunks = kColumns / kChunk, kSteps = kRows / 8 * kChunks;
    constexpr int kOwn = (kSteps + kWarps - 1) / kWarps;
    constexpr unsigned kChunkBytes = kRows * kChunkRowBytes;
    static_assert(kColumns % kChunk == 0 && kRows % 8 == 0, "");
    const unsigned row = lane_id() / 4, piece = lane_id() % 4, swizzle = row * 16;
    const auto step_of = [&](int n) { return static_cast<unsigned>(n * kWarps + warp); };
    const auto is_own = [&](int n) { return (n + 1) * kWarps <= kSteps || step_of(n) < kSteps; };
    const auto rows_of = [&](unsigned step) { return (step / kChunks * 8 + row) * kChunkRowBytes; };
    const auto chunk_of_step = [&](unsigned step) { return (step + row) % kChunks; };
    uint4 narrow[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
        const unsigned step = step_of(n), chunk = chunk_of_step(step);
        if (is_own(n))
            narrow[n] = ptx::load_shared(from + chunk / 2 * kChunkBytes + rows_of(step) +
                                         ((chunk % 2 * 64 + piece * 16) ^ swizzle));
    }
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
        const unsigned step = step_of(n);
        const uint2 first = widen_e4m3<kElement>(narrow[n].x), second = widen_e4m3<kElement>(narrow[n].y);
        const uint2 third = widen_e4m3<kElement>(narrow[n].z), fourth = widen_e4m3<kElement>(narrow[n].w);
        const unsigned own = to + chunk_of_step(step) * kChunkBytes + rows_of(step) + ((piece * 32) ^ swizzle);
        if (!is_own(n)) continue;
        ptx::store_shared(own, make_uint4(first.x, first.y, second.x, second.y));
        ptx::store_shared(own ^ 16, make_uint4(third.x, third.y, fourth.x, fourth.y));
    }
    ptx::fence_async_proxy();
}

}  // namespace flashtile
