// tile_schedule.h: which blocks of queries a thread block of a persistent kernel works on. There are as many thread
// blocks as multiprocessors, and each knows its own list without asking: that needs no counter in memory.
#pragma once

#include "cuda/kernels/parts/sequence.h"

namespace flashtile {

// A block of queries of one head, and the blocks of keys that it sees, walked from the last one back.
template <KernelConfig config>
struct QueryTile {
    Sequence seq;
    int i0, i1;
    int first_block, blocks;

    __device__ __forceinline__ QueryTile(const KernelParams& p, unsigned head, int block)
        : seq(Sequence::make<config>(p, head / p.heads, head % p.heads)),
          i0(block * config.Br),
          i1(smaller(i0 + config.Br, seq.seqlen_q)) {
        const int first = seq.first_key<config>(i0), end = seq.end_key<config>(i1);
        first_block = first / config.Bc;
        blocks = first < end ? (end - 1) / config.Bc - first_block + 1 : 0;
    }
    __device__ __forceinline__ int key_of(int n) const { return (first_block + blocks - 1 - n) * config.Bc; }
};

template <KernelConfig config>
struct TileSchedule {
    unsigned query_blocks, heads, tiles;

    __device__ __forceinline__ explicit TileSchedule(const KernelParams& p)
        : query_blocks(static_cast<unsigned>((p.seqlen_q + config.Br - 1) / config.Br)),
          heads(static_cast<unsigned>(p.heads) * static_cast<unsigned>(p.batch)),
          tiles(query_blocks * heads) {}

    // Calls body(QueryTile) for this thread block's tiles. Where a mask makes them unequal they are dealt out from the
    // longest to the shortest and back again, so that all thread blocks end with about the same; otherwise head by
    // head, so that K and V of few heads are in the cache at a time.
    template <class Body>
    __device__ __forceinline__ void each(const KernelParams& p, Body body) const {
        for (unsigned first = 0, round = 0; first < tiles; first += gridDim.x, ++round) {
            const bool back = config.band && round % 2 != 0;
            const unsigned n = first + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
            if (n >= tiles) continue;
            if constexpr (config.band)
                body(QueryTile<config>(p, n % heads, static_cast<int>(query_blocks - 1 - n / heads)));
            else
                body(QueryTile<config>(p, n / query_blocks, static_cast<int>(n % query_blocks)));
        }
    }
};

}  // namespace flashtile
