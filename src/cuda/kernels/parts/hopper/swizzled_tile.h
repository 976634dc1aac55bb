// swizzled_tile.h: a tile of 16-bit values as TMA's 128-byte swizzle leaves it (sm_90): chunks of 64 columns, each of
// rows of 128 bytes, whose pieces of 16 bytes change places from row to row. Here is where an element lies in it, and
// how accumulators of a warpgroup's product leave by way of it, so that a row is stored in whole vectors: the swizzle
// keeps writing and reading free of bank conflicts, and TMA can store the tile.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/ptx/ldmatrix.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/stmatrix.h"
#include "shared/kernel_layout.h"
#include "shared/mask.h"

namespace flashtile {

template <int kTileRows>
__device__ __forceinline__ unsigned place_in_tile(unsigned tile, int row, int column) {
    const unsigned offset = row * kChunkRowBytes + column % kChunk * (kChunkRowBytes / kChunk);
    return tile + column / kChunk * kTileRows * kChunkRowBytes + (offset ^ (offset >> 3 & 0x70));
}

// Writes this warp's 16 rows to rows [row, row + 16) of the tile, which no other warp touches. pair(n, half) gives this
// lane's two columns of the n-th eight. A step of 16 columns flips bits of the swizzled address.
template <int kTileRows, int NT, class Pair>
__device__ __forceinline__ void write_pairs(unsigned tile, int row, Pair pair) {
    static_assert(NT % 2 == 0, "");
    const int lane = static_cast<int>(lane_id());
    const unsigned own = place_in_tile<kTileRows>(tile, row + lane % 16, lane / 16 * 8);
#pragma unroll
    for (int n = 0; n < NT; n += 2)
        ptx::stmatrix_x4((own ^ n % 8 * 16) + n / 8 * kTileRows * kChunkRowBytes,
                         {pair(n, 0), pair(n, 1), pair(n + 1, 0), pair(n + 1, 1)});
}

// This warp's 16 rows, from `row` on, of the tile's first kColumns columns, as the left factor of a product.
template <Element kElement, int kTileRows, int kColumns>
__device__ __forceinline__ auto read_left(unsigned tile, int row) {
    typename Math<kElement>::template Left<1, kColumns / 8> x;
    constexpr int kStep = 32, kSteps = kColumns * size_of(kElement) / kStep;  // bytes of a row
    const int lane = static_cast<int>(lane_id());
    const unsigned own = place_in_tile<0>(tile, row + lane % 16, lane / 16 * 8);
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
        ptx::ldmatrix(x.a[0][n],
                      (own ^ n * kStep % kChunkRowBytes) + n * kStep / kChunkRowBytes * kTileRows * kChunkRowBytes);
    return x;
}

// Writes accumulators, times `factor` of each row. x has kParts times the tile's columns, and part `part` of them is
// written.
template <Element kElement, int kTileRows, int kParts = 1, int OT>
__device__ __forceinline__ void write_warp_rows(const Fragments<1, OT>& x, const float (&factor)[2], unsigned tile,
                                                int row, int part = 0) {
    write_pairs<kTileRows, OT / kParts>(tile, row, [&](int n, int half) {
        const float* c = &x.c[0][part * (OT / kParts) + n][2 * half];
        return Math<kElement>::pack(c[0] * factor[half], c[1] * factor[half]);
    });
}

// Writes accumulators to the tile, and from there to the first `count` rows of `to`.
template <Element kElement, int kColumns, int kTileRows, int OT>
__device__ __forceinline__ void store_warp_rows(const Fragments<1, OT>& x, const float (&factor)[2], unsigned tile,
                                                int row, typename Math<kElement>::Scalar* to, Index stride, int count) {
    write_warp_rows<kElement, kTileRows>(x, factor, tile, row);
    __syncwarp();  // a warp reads what it wrote itself
    constexpr int kVectors = kColumns / 8;
    for (int n = static_cast<int>(lane_id()); n < 16 * kVectors; n += 32) {
        const int own = n / kVectors, column = n % kVectors * 8;
        if (own < count)
            *reinterpret_cast<uint4*>(to + own * stride + column) =
                ptx::load_shared(place_in_tile<kTileRows>(tile, row + own, column));
    }
}

}  // namespace flashtile
