// tile_schedule.h: which blocks of queries a thread block of a persistent kernel works on. There are as many thread
// blocks as fit the multiprocessors at once, and each finds its own list of tiles without a counter in memory. The
// producer walks the list and passes each tile on with its Q, so that consumers spend no registers on it.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/kernel_layout.h"

namespace flashtile {

struct TileNumber {
    static constexpr unsigned kWhole = ~0u;

    unsigned head, block;
    // With shares: which of the blocks of keys, and the row of the workspace from which on it has what they come to,
    // unless that is the result.
    unsigned first = 0, count = 0, part = kWhole;
};

// How many heads, or groups of heads, have tiles of their own.
template <KernelConfig config>
__device__ __forceinline__ int tile_heads(const KernelParams& p) {
    return config.group_rows == 1 ? p.heads : p.kv_heads;
}
// How many tiles so many queries take, of a head or of a group's heads together.
template <KernelConfig config>
__device__ __forceinline__ Index query_blocks(Index seqlen_q) {
    return (seqlen_q * config.group_rows + config.Br - 1) / config.Br;
}

// The blocks of keys that any query of a sequence sees.
template <KernelConfig config>
__device__ __forceinline__ VisitedBlocks<int> seen_blocks(const Sequence& seq) {
    return VisitedBlocks<int>::holding(seq.first_key<config>(0), seq.end_key<config>(seq.seqlen_q), config.Bc,
                                       seq.seqlen_q > 0);
}

// Tile n of the heads from first_head on, which have `tiles` tiles each. They go head by head, each from its last tile
// to its first, which in a causal problem has least to do.
__device__ __forceinline__ TileNumber last_to_first(unsigned first_head, unsigned n, unsigned tiles) {
    return {first_head + n / tiles, tiles - 1 - n % tiles};
}

// A block of rows, and the blocks of keys that they see, which are walked from the last one back. Beside a mask
// function `keys` counts those that it shows something of (TileWalk finds them). A row is a query of a head. Where
// heads of a group share the tile, row n is query n / group_rows of the group's head n % group_rows.
template <KernelConfig config>
struct QueryTile {
    Sequence seq;  // of the group's first head
    int i0, i1;    // rows
    VisitedBlocks<int> keys;
    unsigned part = TileNumber::kWhole;  // as TileNumber has it

    __device__ __forceinline__ QueryTile(const KernelParams& p, TileNumber number)
        : QueryTile(p, number.head, static_cast<int>(number.block)) {
        if constexpr (config.shares) {
            const int begin = seen_blocks<config>(seq).first_block + static_cast<int>(number.first);
            const int first = larger(begin, keys.first_block);
            const int end = smaller(begin + static_cast<int>(number.count), keys.first_block + keys.count);
            keys.first_block = first;
            keys.count = larger(end - first, 0);
            part = number.part;
        }
    }
    __device__ __forceinline__ QueryTile(const KernelParams& p, unsigned head, int block)
        : seq(Sequence::make_apart<config>(
              p, batch_first(p) ? head % p.batch : head / tile_heads<config>(p),
              (batch_first(p) ? head / p.batch : head % tile_heads<config>(p)) * heads_of_tile(p))),
          i0(block * config.Br),
          i1(smaller(i0 + config.Br, seq.seqlen_q * config.group_rows)) {
        keys = banded_keys();
        if constexpr (config.mask_function)
            keys.count = shown(p).count(keys.first_block, keys.first_block + keys.count);
    }

    // The blocks of keys that the band lets the rows see. Past the end of a sequence that is shorter than others there
    // is nothing to do.
    __device__ __forceinline__ VisitedBlocks<int> banded_keys() const {
        const int first = seq.first_key<config>(query_of<config>(i0));
        const int end = seq.end_key<config>(query_end<config>(i1));
        return VisitedBlocks<int>::holding(first, end, config.Bc, !(config.packed || config.seqused_q) || i0 < i1);
    }
    __device__ __forceinline__ ShownBlocks shown(const KernelParams& p) const {
        return {BlockMap<config>::line(p, seq.b, seq.h, i0)};
    }

    // The producer writes it to shared memory for the others, since reading it takes less time than dividing and
    // looking lengths up.
    static constexpr bool kTellsKeyRow = config.scale_blocks && config.cache;  // where a cache has its scales
    static constexpr bool kTellsMore = config.shares || config.first_k || kTellsKeyRow;
    static constexpr int kBytes = 32 + (config.packed ? 16 : 0) + (kTellsMore ? 16 : 0);
    __device__ __forceinline__ void write(const KernelParams& p, unsigned address) const {
        ptx::store_shared(address, make_uint4(i0, keys.first_block, keys.count, seq.rows_k));
        ptx::store_shared(address + 16, make_uint4(low(seq.b), low(seq.h), seq.seqlen_q, seq.seqlen_k));
        if constexpr (config.packed)
            ptx::store_shared(address + 32,
                              make_uint4(low(seq.first_q), high(seq.first_q), low(seq.first_k), high(seq.first_k)));
        if constexpr (kTellsMore)
            ptx::store_shared(address + kBytes - 16,
                              make_uint4(part, static_cast<unsigned>(seq.hidden_k), low(seq.band.offset - p.diagonal),
                                         kTellsKeyRow ? low(seq.key_row) : 0));
    }
    __device__ static __forceinline__ QueryTile read(const KernelParams& p, unsigned address) {
        const uint4 place = ptx::load_shared(address), sequence = ptx::load_shared(address + 16);
        int seqlen_q = static_cast<int>(p.seqlen_q), seqlen_k = static_cast<int>(p.seqlen_k), rows_k = seqlen_k;
        if constexpr (config.lengths_in_memory()) {
            seqlen_q = static_cast<int>(sequence.z);
            seqlen_k = static_cast<int>(sequence.w);
            rows_k = static_cast<int>(place.w);
        }
        Index first_q = 0, first_k = 0;
        if constexpr (config.packed) {
            const uint4 first = ptx::load_shared(address + 32);
            first_q = both(first.x, first.y);
            first_k = both(first.z, first.w);
        }
        QueryTile tile(Sequence::of_lengths<config>(p, static_cast<Index>(sequence.x), static_cast<Index>(sequence.y),
                                                    first_q, first_k, seqlen_q, seqlen_k, rows_k),
                       static_cast<int>(place.x), {config.Bc, static_cast<int>(place.y), static_cast<int>(place.z)});
        if constexpr (config.chunk) tile.seq.chunk = p.attention_chunk;
        if constexpr (kTellsMore) {
            const uint4 more = ptx::load_shared(address + kBytes - 16);
            tile.part = more.x;
            tile.seq.hidden_k = static_cast<int>(more.y);
            if constexpr (kTellsKeyRow) tile.seq.key_row = static_cast<Index>(more.w);
            // the band is not that of these lengths
            if constexpr (config.prefixes) tile.seq.band.offset = p.diagonal + static_cast<int>(more.z);
        }
        return tile;
    }

    __device__ __forceinline__ int key_of(int n) const { return keys.backwards(n); }
    // The head's coordinate in the tensor maps of queries, which count heads, or groups of heads.
    __device__ __forceinline__ int map_head(const KernelParams& p) const {
        return static_cast<int>(config.group_rows == 1 ? seq.h : seq.kv_head(p));
    }

private:
    __device__ __forceinline__ QueryTile(const Sequence& sequence, int row, const VisitedBlocks<int>& visited)
        : seq(sequence), i0(row), i1(smaller(i0 + config.Br, seq.seqlen_q * config.group_rows)), keys(visited) {}
    __device__ static __forceinline__ unsigned low(Index x) { return static_cast<unsigned>(x); }
    __device__ static __forceinline__ unsigned high(Index x) { return static_cast<unsigned>(x >> 32); }
    __device__ static __forceinline__ Index both(unsigned low, unsigned high) {
        return static_cast<Index>(high) << 32 | low;
    }
    // Whether a head's tiles of all sequences come before the next head. They do where all sequences share a bias, so
    // that it is read from memory once for all of them.
    __device__ static __forceinline__ bool batch_first(const KernelParams& p) {
        return config.bias_mapped && !config.lengths_differ() && p.bias.stride_batch == 0;
    }
    __device__ static __forceinline__ unsigned heads_of_tile(const KernelParams& p) {
        return config.group_rows == 1 ? 1 : static_cast<unsigned>(p.group);
    }
};

// The walk over a tile's blocks of keys, for those whom nobody tells which is next.
template <KernelConfig config>
struct TileWalk {
    // Beside a mask function: the map's line, and the block at hand, of which those before it are to come.
    ShownBlocks shown;
    ShownBlock block;
    int first;

    __device__ __forceinline__ TileWalk(const KernelParams& p, const QueryTile<config>& tile) {
        if constexpr (!config.mask_function) return;
        const auto keys = tile.banded_keys();
        shown = tile.shown(p);
        first = keys.first_block;
        block.number = first + keys.count;
    }
    // To the n-th block, to be asked for n = 0, 1, 2, ... Returns where it starts.
    __device__ __forceinline__ int key_of(const QueryTile<config>& tile, int n) {
        if constexpr (!config.mask_function) return tile.key_of(n);
        block = shown.last(first, block.number);
        return block.number * config.Bc;
    }
};

// A thread block's list of tiles, of equal or unequal length. KernelParams::rounds says how they are dealt out.
template <KernelConfig config>
struct TileSchedule {
    const TileRounds& all;
    unsigned turn = 0;

    __device__ __forceinline__ explicit TileSchedule(const KernelParams& p) : all(p.rounds) {}

    // The next of this thread block's tiles; false if there is none.
    __device__ __forceinline__ bool next(TileNumber& tile) {
        while (true) {
            const unsigned now = turn++;
            if (config.band && now < 2 * all.rounds) {
                const unsigned pair = now / 2 * gridDim.x + blockIdx.x, head = pair / all.pairs;
                const unsigned shortest = pair - head * all.pairs;
                tile = {head, now % 2 == 0 ? all.tiles - 1 - shortest : shortest};
                // the middle one of an odd number of tiles has no partner
                if (now % 2 == 0 || 2 * shortest + 1 != all.tiles) return true;
            } else {
                const unsigned round = now - 2 * all.rounds;
                if (round * gridDim.x >= all.rest) return false;
                const bool back = config.band && round % 2 != 0;
                const unsigned n = round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
                if (n >= all.rest) continue;
                if constexpr (config.band)
                    tile = longest_first(n);
                else
                    tile = {n / all.tiles, n % all.tiles};
                return true;
            }
        }
    }

private:
    // The n-th longest tile of the rest. Heads that were not begun have a tile of every length. The head that was
    // begun, if there is one, has tiles only of the lengths between.
    __device__ __forceinline__ TileNumber longest_first(unsigned n) const {
        const unsigned taken = all.taken, whole = all.heads - all.first_head, begun = taken == 0 ? 0 : 1;
        const unsigned outer = taken * whole, inner = (all.tiles - 2 * taken) * (whole + begun);
        if (n < outer) return {all.first_head + n % whole, all.tiles - 1 - n / whole};
        n -= outer;
        if (n < inner)
            return {all.first_head - begun + n % (whole + begun), all.tiles - 1 - taken - n / (whole + begun)};
        n -= inner;
        return {all.first_head + n % whole, taken - 1 - n / whole};
    }
};

}  // namespace flashtile
