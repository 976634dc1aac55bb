// tile_copy.h: a tile of one head's rows to shared memory by the copy engine, chunk after chunk of 64 columns, as its
// 128-byte swizzle leaves them (sm_90).
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

}  // namespace flashtile
