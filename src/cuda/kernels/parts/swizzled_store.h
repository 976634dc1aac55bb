// swizzled_store.h: accumulators of a warpgroup's product to rows of a tensor, by way of a tile in shared memory, so
// that a row leaves in whole vectors. The tile has the copy engine's swizzle, which keeps both ways free of bank
// conflicts.
#pragma once

#include "cuda/kernels/parts/scores.h"
#include "cuda/kernels/parts/wgmma_product.h"
#include "cuda/kernels/ptx/shared_memory.h"

namespace flashtile {

// This warp's 16 rows, times `factor` of each, to the first `count` rows of `to`, through rows [row, row + 16) of the
// tile, which no other warp touches.
template <Element kElement, int kColumns, int kTileRows, int OT>
__device__ __forceinline__ void store_warp_rows(const Fragments<1, OT>& x, const float (&factor)[2], unsigned tile,
                                                int row, typename Math<kElement>::Scalar* to, Index stride, int count) {
    const auto place = [&](int tile_row, int column) {
        return tile + column / kChunk * kTileRows * 128 + swizzled(tile_row * 128 + column % kChunk * 2);
    };
#pragma unroll
    for (int n = 0; n < OT; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            ptx::store_shared(
                place(row + Place::row(0, 2 * half), Place::column(n, 0)),
                Math<kElement>::pack(x.c[0][n][2 * half] * factor[half], x.c[0][n][2 * half + 1] * factor[half]));
    __syncwarp();  // a warp reads what it wrote itself
    constexpr int kVectors = kColumns / 8;
    for (int n = static_cast<int>(lane_id()); n < 16 * kVectors; n += 32) {
        const int own = n / kVectors, column = n % kVectors * 8;
        if (own < count)
            *reinterpret_cast<uint4*>(to + own * stride + column) = ptx::load_shared(place(row + own, column));
    }
}

}  // namespace flashtile
