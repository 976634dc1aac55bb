// key_split.h: which tile's splits of the keys a thread block works on, and where the workspace has what a split came
// to (section 3.2 of the paper, for keys). The rule is in shared/key_splits.h.
#pragma once

#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

// The number of split n of a row in the workspace.
__device__ __forceinline__ Index part_of(const KernelParams& p, Index b, Index i, Index h, Index n) {
    return ((b * p.part_queries + i) * p.heads + h) * p.most_splits + n;
}

// Split n of a sequence's keys.
struct KeySplit {
    int n = 0, count = 1;
    int first = 0, end = 0;  // its keys

    // A sequence with many queries has one split.
    __device__ static __forceinline__ KeySplit of(const KernelParams& p, const Sequence& seq, unsigned number) {
        const int n = static_cast<int>(number);
        if (seq.seqlen_q > KeySplits::kMostQueries) return {n, 1, 0, seq.seqlen_k};
        const KeySplits splits = KeySplits::of(seq.seqlen_k, p.split_rule);
        const Index first = n * splits.keys;
        return {n, static_cast<int>(splits.count), static_cast<int>(smaller(first, Index{seq.seqlen_k})),
                static_cast<int>(smaller(first + splits.keys, Index{seq.seqlen_k}))};
    }

    // Narrow a range of keys to those of the split.
    template <KernelConfig config>
    __device__ __forceinline__ int later_of(int first_key) const {
        return config.split && first > first_key ? first : first_key;
    }
    template <KernelConfig config>
    __device__ __forceinline__ int sooner_of(int end_key) const {
        return config.split && end < end_key ? end : end_key;
    }
};

// A unit of work is a block of rows with a split of the keys. So many are those of one head, or of heads that share
// tiles, of a sequence.
struct SequenceUnits {
    unsigned blocks, splits;  // of rows; of each block's keys

    template <KernelConfig config>
    __device__ static __forceinline__ SequenceUnits of(const KernelParams& p, const Sequence& seq) {
        const unsigned rows = static_cast<unsigned>(seq.seqlen_q) * config.group_rows;
        return {(rows + config.Br - 1) / config.Br, static_cast<unsigned>(KeySplit::of(p, seq, 0).count)};
    }
    __device__ __forceinline__ unsigned count() const { return blocks * splits; }
};

struct SplitTile {
    unsigned head;  // through all sequences; a key head where heads share tiles
    unsigned block, slice, split;
};

// The units of all sequences, which thread blocks walk through. Where deal_splits.h has counted them, each thread block
// takes the next one that none has taken, since units differ in length. Otherwise the host has counted the units that
// there is room for: the first split of every tile, then the others of those tiles whose keys may be split.
template <KernelConfig config>
class SplitSchedule {
public:
    __device__ __forceinline__ explicit SplitSchedule(const KernelParams& params)
        : p(params),
          tiles(p.batch * heads() * blocks_of(p.seqlen_q)),
          blocks(blocks_of(p.seqlen_q)),
          split_blocks(blocks_of(smaller(p.seqlen_q, KeySplits::kMostQueries))),
          more_splits(static_cast<unsigned>(p.most_splits) - 1) {}

    __device__ __forceinline__ unsigned count() const {
        const unsigned units =
            dealt() ? p.ws_first_unit[p.batch] * heads() : tiles + tiles / blocks * split_blocks * more_splits;
        return units * config.value_slices;
    }
    // What this thread block takes after unit n.
    __device__ __forceinline__ unsigned after(unsigned n) const {
        return gridDim.x + (dealt() ? atomicAdd(p.ws_ticket, 1u) : n);
    }
    __device__ __forceinline__ SplitTile operator[](unsigned n) const {
        const unsigned slice = n % config.value_slices;
        n /= config.value_slices;
        if (dealt()) return dealt_tile(n, slice);
        if (n < tiles) return {n / blocks, blocks - 1 - n % blocks, slice, 0};
        n -= tiles;
        const unsigned split = 1 + n % more_splits, tile = n / more_splits;
        return {tile / split_blocks, tile % split_blocks, slice, split};
    }
    __device__ __forceinline__ Sequence sequence(const SplitTile& tile) const {
        return Sequence::make<config>(p, tile.head / heads(),
                                      Index{tile.head % heads()} * (config.group_rows == 1 ? 1 : p.group));
    }

private:
    __device__ __forceinline__ bool dealt() const { return p.ws_first_unit != nullptr; }
    // Units go sequence by sequence, head by head, and from the last block of rows to the first.
    __device__ __forceinline__ SplitTile dealt_tile(unsigned n, unsigned slice) const {
        unsigned b = 0, end = static_cast<unsigned>(p.batch);
        while (end - b > 1) {
            const unsigned middle = (b + end) / 2;
            (p.ws_first_unit[middle] * heads() <= n ? b : end) = middle;
        }
        n -= p.ws_first_unit[b] * heads();
        const SequenceUnits its = SequenceUnits::of<config>(p, Sequence::make<config>(p, b, 0));
        const unsigned head = n / its.count(), unit = n % its.count();
        return {b * heads() + head, its.blocks - 1 - unit / its.splits, slice, unit % its.splits};
    }
    __device__ __forceinline__ unsigned heads() const {
        return static_cast<unsigned>(config.group_rows == 1 ? p.heads : p.kv_heads);
    }
    __device__ static __forceinline__ unsigned blocks_of(Index queries) {
        return static_cast<unsigned>((queries * config.group_rows + config.Br - 1) / config.Br);
    }

    const KernelParams& p;
    const unsigned tiles, blocks, split_blocks, more_splits;
};

}  // namespace flashtile
