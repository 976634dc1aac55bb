// sequence_edges.h: clears the rows that TMA brought beyond a sequence's own, where lengths lie in device memory and
// TMA cannot know them (sm_90).
#pragma once

#include "cuda/kernels/parts/hopper/named_barriers.h"
#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/tma.h"
#include "cuda/kernels/ptx/warpgroup.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// The 128 threads of a warpgroup clear rows [first, end) of a tile of kRows rows. The swizzle stays within a row.
template <int kRows, int kColumns, int kColumnsOfChunk = kChunk>
__device__ __forceinline__ void clear_rows(unsigned tile, int first, int end) {
    constexpr int kPieces = 8;  // of 16 bytes, in a row of a chunk
    for (int n = static_cast<int>(threadIdx.x % 128); n < (end - first) * kPieces; n += 128)
#pragma unroll
        for (int c = 0; c < kColumns; c += kColumnsOfChunk)
            ptx::store_shared(tile + c / kColumnsOfChunk * kRows * kChunkRowBytes + first * kChunkRowBytes + n * 16,
                              make_uint4(0, 0, 0, 0));
}

// Makes what a consumer wrote visible to the products that it starts.
__device__ __forceinline__ void publish(int consumer) {
    ptx::fence_async_proxy();
    ptx::named_barrier(barriers::kCleared + consumer, barriers::kWarpgroup);
}

// Clears queries of the next sequence, which would take part in what the rows of a warp decide together. `own_q` has
// this consumer's 64.
template <KernelConfig config>
__device__ __forceinline__ void clear_queries(const QueryTile<config>& tile, int consumer, unsigned own_q) {
    const int own = tile.i1 - tile.i0 - consumer * 64;
    if (own >= 64) return;
    constexpr int kColumnsOfChunk = chunk_of(config.element);
    clear_rows<config.Br, chunk_columns(config.head_dim, kColumnsOfChunk), kColumnsOfChunk>(own_q, own > 0 ? own : 0,
                                                                                            64);
    publish(consumer);
}

// Clears V of keys of the block from j0 on that no query of the sequence sees: it may be NaN, and then 0 * V would be
// NaN. All consumers write the same zeros.
template <KernelConfig config>
__device__ __forceinline__ void clear_hidden_values(const QueryTile<config>& tile, int consumer, int j0, unsigned v) {
    const Sequence& seq = tile.seq;
    const int first = seq.first_key<config>(0) - j0;
    const int end = seq.end_key<config>(seq.seqlen_q) - j0;
    if (first <= 0 && end >= config.Bc) return;
    clear_rows<config.Bc, chunk_columns(config.head_dim_v)>(v, 0, first);
    clear_rows<config.Bc, chunk_columns(config.head_dim_v)>(v, end, config.Bc);
    publish(consumer);
}

// Backward: clears the rows outside [first, end) of a block that starts at row `row` of the sequence. These are keys
// that no query sees, or queries that see no key, and what lies there may be NaN. Consumers write the same zeros.
template <int kRows, int kColumns>
__device__ __forceinline__ void clear_outside(unsigned tile, int row, int first, int end) {
    clear_rows<kRows, kColumns>(tile, 0, smaller(first - row, kRows));
    clear_rows<kRows, kColumns>(tile, end > row ? end - row : 0, kRows);
}

}  // namespace flashtile
