// tile_schedule.h: which blocks of queries a thread block of a persistent kernel works on. There are as many thread
// blocks as multiprocessors, and each knows its own list without asking: that needs no counter in memory. The producer
// walks the list and hands the numbers on with Q, so that consumers spend no registers on it.
#pragma once

#include "cuda/kernels/parts/sequence.h"

namespace flashtile {

struct TileNumber {
    unsigned head, block;
};

// Heads, or groups of heads, that have tiles of their own.
template <KernelConfig config>
__device__ __forceinline__ int tile_heads(const KernelParams& p) {
    return config.group_rows == 1 ? p.heads : p.kv_heads;
}
// The tiles of so many queries of a head, or of a group's heads together.
template <KernelConfig config>
__device__ __forceinline__ Index query_blocks(Index seqlen_q) {
    return (seqlen_q * config.group_rows + config.Br - 1) / config.Br;
}

// Of heads from first_head on, with `tiles` tiles each, the n-th: head by head, each from its last tile to its first,
// which in a causal problem has least to do.
__device__ __forceinline__ TileNumber last_to_first(unsigned first_head, unsigned n, unsigned tiles) {
    return {first_head + n / tiles, tiles - 1 - n % tiles};
}

// A block of rows, and the blocks of keys that they see, walked from the last one back. A row is a query of a head; or,
// where heads of a group share the tile, row n is query n / group_rows of the group's head n % group_rows.
template <KernelConfig config>
struct QueryTile {
    Sequence seq;  // of the group's first head
    int i0, i1;    // rows
    int first_block, blocks;

    __device__ __forceinline__ QueryTile(const KernelParams& p, TileNumber number)
        : QueryTile(p, number.head, static_cast<int>(number.block)) {}
    __device__ __forceinline__ QueryTile(const KernelParams& p, unsigned head, int block)
        : seq(Sequence::make<config>(
              p, batch_first(p) ? head % p.batch : head / tile_heads<config>(p),
              (batch_first(p) ? head / p.batch : head % tile_heads<config>(p)) * heads_of_tile(p))),
          i0(block * config.Br),
          i1(smaller(i0 + config.Br, seq.seqlen_q * config.group_rows)) {
        const int first = seq.first_key<config>(query_of<config>(i0));
        const int end = seq.end_key<config>(query_end<config>(i1));
        first_block = first / config.Bc;
        // past the end of a sequence that is shorter than others there is nothing to do
        blocks = first < end && (!config.packed || i0 < i1) ? (end - 1) / config.Bc - first_block + 1 : 0;
    }
    __device__ __forceinline__ int key_of(int n) const { return (first_block + blocks - 1 - n) * config.Bc; }
    // Among the heads, or groups of heads, of what is mapped for queries.
    __device__ __forceinline__ int map_head(const KernelParams& p) const {
        return static_cast<int>(config.group_rows == 1 ? seq.h : seq.kv_head(p));
    }

private:
    // A bias that all sequences share is brought once for all of them, if its head's tiles are at hand together.
    __device__ static __forceinline__ bool batch_first(const KernelParams& p) {
        return config.bias_mapped && !config.lengths_differ() && p.bias.stride_batch == 0;
    }
    __device__ static __forceinline__ unsigned heads_of_tile(const KernelParams& p) {
        return config.group_rows == 1 ? 1 : static_cast<unsigned>(p.group);
    }
};

// Where masks make tiles unequal, most of them are dealt out as pairs, a head's longest with its shortest, next longest
// with next shortest: pairs are equal, and go head by head, so that K and V of few heads are in the cache at a time.
// The last one to two rounds of pairs are dealt as single tiles from the longest to the shortest and back again, so
// that all thread blocks end with about the same. Equal tiles go head by head.
template <KernelConfig config>
struct TileSchedule {
    unsigned query_blocks, heads;
    unsigned pairs;   // a head; of an odd number of tiles the one in the middle is a pair alone
    unsigned rounds;  // of pairs
    // What the rounds leave: all tiles of heads [first_head, heads), and of the head before it those that are neither
    // among its `taken` longest nor its `taken` shortest.
    unsigned first_head, taken, rest;
    unsigned turn = 0;

    __device__ __forceinline__ explicit TileSchedule(const KernelParams& p)
        : query_blocks(static_cast<unsigned>(flashtile::query_blocks<config>(p.seqlen_q))),
          heads(static_cast<unsigned>(tile_heads<config>(p)) * static_cast<unsigned>(p.batch)),
          pairs((query_blocks + 1) / 2),
          rounds(0),
          first_head(0),
          taken(0),
          rest(query_blocks * heads) {
        if constexpr (config.band) {
            const unsigned whole_rounds = pairs * heads / gridDim.x;
            rounds = whole_rounds > 1 ? whole_rounds - 1 : 0;
            first_head = (rounds * gridDim.x + pairs - 1) / pairs;
            taken = rounds * gridDim.x % pairs;
            rest = (heads - first_head) * query_blocks + (taken == 0 ? 0 : query_blocks - 2 * taken);
        }
    }

    // The next of this thread block's tiles; false if there is none.
    __device__ __forceinline__ bool next(TileNumber& tile) {
        while (true) {
            const unsigned now = turn++;
            if (config.band && now < 2 * rounds) {
                const unsigned pair = now / 2 * gridDim.x + blockIdx.x, shortest = pair % pairs;
                tile = {pair / pairs, now % 2 == 0 ? query_blocks - 1 - shortest : shortest};
                if (now % 2 == 0 || 2 * shortest + 1 != query_blocks) return true;  // or it is alone
            } else {
                const unsigned round = now - 2 * rounds;
                if (round * gridDim.x >= rest) return false;
                const bool back = config.band && round % 2 != 0;
                const unsigned n = round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
                if (n >= rest) continue;
                if constexpr (config.band)
                    tile = longest_first(n);
                else
                    tile = {n / query_blocks, n % query_blocks};
                return true;
            }
        }
    }

private:
    // The n-th longest of the rest: of the longest and the shortest blocks the whole heads have one each, of those
    // between the head that was begun has one as well.
    __device__ __forceinline__ TileNumber longest_first(unsigned n) const {
        const unsigned whole = heads - first_head, begun = taken == 0 ? 0 : 1;
        const unsigned outer = taken * whole, inner = (query_blocks - 2 * taken) * (whole + begun);
        if (n < outer) return {first_head + n % whole, query_blocks - 1 - n / whole};
        n -= outer;
        if (n < inner)
            return {first_head - begun + n % (whole + begun), query_blocks - 1 - taken - n / (whole + begun)};
        n -= inner;
        return {first_head + n % whole, taken - 1 - n / whole};
    }
};

}  // namespace flashtile
