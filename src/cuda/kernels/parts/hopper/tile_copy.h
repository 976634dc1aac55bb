// tile_copy.h: TMA copies of a tile of one head's rows to shared memory or back, one chunk of columns after the other,
// with the 128-byte swizzle (sm_90).
#pragma once

#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"
#include "shared/kernel_params.h"

namespace flashtile {

// One thread starts the copy. The barrier counts the bytes.
template <int kColumnsOfChunk = kChunk>
__device__ __forceinline__ void copy_tile(unsigned to, const TensorMap& map, unsigned barrier, int columns, int rows,
                                          int row, int head, int b, int column = 0) {
    for (int c = 0; c < columns; c += kColumnsOfChunk)
        ptx::tma_load(to + c / kColumnsOfChunk * rows * kChunkRowBytes, &map, barrier, column + c, row, head, b);
}

// The same for Br rows of queries, of head `head` or of the group of heads that shares key head `head`. A query of more
// heads than Br takes several tiles.
template <KernelConfig config>
__device__ __forceinline__ void copy_queries(unsigned to, const TensorMap& map, unsigned barrier, int columns, int row,
                                             int head, int b) {
    constexpr int kColumnsOfChunk = chunk_of(config.element);
    if constexpr (config.group_rows == 1)
        copy_tile<kColumnsOfChunk>(to, map, barrier, columns, config.Br, row, head, b);
    else
        for (int c = 0; c < columns; c += kColumnsOfChunk)
            ptx::tma_load(to + c / kColumnsOfChunk * config.Br * kChunkRowBytes, &map, barrier, c,
                          config.group_rows > config.Br ? row % config.group_rows : 0, query_of<config>(row), head, b);
}

// One thread starts the copy back. `from` is where the rows of the map's box begin in a tile of Br rows; they go to
// columns from `column` on.
template <KernelConfig config>
__device__ __forceinline__ void store_queries(unsigned from, const TensorMap& map, int column, int columns, int row,
                                              int head, int b) {
    for (int c = 0; c < columns; c += kChunk) {
        const unsigned chunk = from + c / kChunk * config.Br * kChunkRowBytes;
        if constexpr (config.group_rows == 1)
            ptx::tma_store(chunk, &map, column + c, row, head, b);
        else
            ptx::tma_store(chunk, &map, column + c, 0, query_of<config>(row), head, b);
    }
    ptx::tma_commit();
}

}  // namespace flashtile
