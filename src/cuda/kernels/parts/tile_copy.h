// tile_copy.h: a tile of one head's rows to shared memory or back by the copy engine, chunk after chunk of 64 columns,
// as its 128-byte swizzle leaves them (sm_90).
#pragma once

#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"
#include "shared/kernel_params.h"

namespace flashtile {

// One thread. The bytes are counted at the barrier.
__device__ __forceinline__ void copy_tile(unsigned to, const TensorMap& map, unsigned barrier, int columns, int rows,
                                          int row, int head, int b) {
    for (int c = 0; c < columns; c += kChunk) ptx::tma_load(to + c * rows * 2, &map, barrier, c, row, head, b);
}

// One thread. The tile has `tile_rows`, of which the map's box takes some from `from` on, to columns from `column` on.
__device__ __forceinline__ void store_tile(unsigned from, const TensorMap& map, int column, int columns, int tile_rows,
                                           int row, int head, int b) {
    for (int c = 0; c < columns; c += kChunk) ptx::tma_store(from + c * tile_rows * 2, &map, column + c, row, head, b);
    ptx::tma_commit();
}

}  // namespace flashtile
