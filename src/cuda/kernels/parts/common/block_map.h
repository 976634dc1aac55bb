// block_map.h: which blocks of the scores a mask function shows something of, and which it shows all of, as
// mask_blocks.h has found them before the main kernel. A block of which nothing is shown is neither loaded nor
// computed, and in one that is shown whole no score is asked about. A line of the map is a block of queries with the
// blocks of keys, or, with config.map_of_keys, a block of keys with the blocks of queries. Of 32 blocks in a row it has
// a pair of words: a bit for each that is shown, and a bit for each that is shown whole.
#pragma once

#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

// 32 blocks of a line.
struct MapWords {
    unsigned shown, whole;
};

template <KernelConfig config>
struct BlockMap {
    // The kernel's that walks along the lines. (Kernels that do not walk ask for block after block.)
    static constexpr bool kOfKeys = config.map_of_keys;
    static constexpr int kLineRows = kOfKeys ? config.Bc : config.Br, kBlockRows = kOfKeys ? config.Br : config.Bc;

    __device__ static __forceinline__ Index lines(const KernelParams& p) {
        return ((kOfKeys ? p.seqlen_k : p.seqlen_q) + kLineRows - 1) / kLineRows;
    }
    __device__ static __forceinline__ Index words(const KernelParams& p) {
        return ((kOfKeys ? p.seqlen_q : p.seqlen_k) + kBlockRows * 32 - 1) / (kBlockRows * 32);
    }

    // The line of the block that starts at query or key `row`.
    __device__ static __forceinline__ MapWords* line(const KernelParams& p, Index b, Index h, int row) {
        const Index of_batch = p.block_map_batch == 1 ? 0 : b, of_heads = p.block_map_heads == 1 ? 0 : h;
        const Index number = (of_batch * p.block_map_heads + of_heads) * lines(p) + row / kLineRows;
        return reinterpret_cast<MapWords*>(p.ws_block_map) + number * words(p);
    }

    // Whether the block of query i0 and key j0 may show something; without a map every block may.
    __device__ static __forceinline__ bool shows(const KernelParams& p, Index b, Index h, int i0, int j0) {
        if constexpr (!config.mask_function) return true;
        if (p.ws_block_map == nullptr) return true;
        const int block = (kOfKeys ? i0 : j0) / kBlockRows;
        return (line(p, b, h, kOfKeys ? j0 : i0)[block / 32].shown >> block % 32 & 1) != 0;
    }
};

// A block of a line that a walk has come to.
struct ShownBlock {
    int number = -1;     // -1: there is none
    bool whole = false;  // the mask function hides nothing of it
};

// The blocks [first, end) of a line of which something is shown. A walk asks for one after the other and keeps nothing
// but where it is. Most lines have a word or a few: no loop is unrolled, which would take registers.
struct ShownBlocks {
    const MapWords* line;

    __device__ __forceinline__ int count(int first, int end) const {
        int sum = 0;
#pragma unroll 1
        for (int w = first / 32; w * 32 < end; ++w) sum += __popc(from(till(line[w].shown, w, end), w, first));
        return sum;
    }
    __device__ __forceinline__ bool any_whole(int first, int end) const {
        bool any = false;
#pragma unroll 1
        for (int w = first / 32; w * 32 < end; ++w) any = any || from(till(line[w].whole, w, end), w, first) != 0;
        return any;
    }
    __device__ __forceinline__ ShownBlock first(int first, int end) const {
#pragma unroll 1
        for (int w = first / 32; w * 32 < end; ++w) {
            const MapWords words = line[w];
            const unsigned left = from(till(words.shown, w, end), w, first);
            if (left != 0) return at(words, w, __ffs(static_cast<int>(left)) - 1);
        }
        return {};
    }
    __device__ __forceinline__ ShownBlock last(int first, int end) const {
#pragma unroll 1
        for (int w = (end - 1) / 32; end > first && w >= first / 32; --w) {
            const MapWords words = line[w];
            const unsigned left = from(till(words.shown, w, end), w, first);
            if (left != 0) return at(words, w, 31 - __clz(static_cast<int>(left)));
        }
        return {};
    }

private:
    // Of the bits of word w, those from block `first` on, or those before `end`.
    __device__ __forceinline__ static unsigned from(unsigned bits, int w, int first) {
        return first > w * 32 ? bits & ~0u << (first - w * 32) : bits;
    }
    __device__ __forceinline__ static unsigned till(unsigned bits, int w, int end) {
        return end < w * 32 + 32 ? bits & ~0u >> (w * 32 + 32 - end) : bits;
    }
    __device__ __forceinline__ static ShownBlock at(const MapWords& words, int w, int bit) {
        return {w * 32 + bit, (words.whole >> bit & 1) != 0};
    }
};

}  // namespace flashtile
