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
    __device__ static __forceinline__ const MapWords* line(const KernelParams& p, Index b, Index h, int row) {
        const Index of_batch = p.block_map_batch == 1 ? 0 : b, of_heads = p.block_map_heads == 1 ? 0 : h;
        const Index number = (of_batch * p.block_map_heads + of_heads) * lines(p) + row / kLineRows;
        return reinterpret_cast<const MapWords*>(p.ws_block_map) + number * words(p);
    }

    // Whether the block of query i0 and key j0 may show something; without a map every block may.
    __device__ static __forceinline__ bool shows(const KernelParams& p, Index b, Index h, int i0, int j0) {
        if constexpr (!config.mask_function) return true;
        if (p.ws_block_map == nullptr) return true;
        const int block = (kOfKeys ? i0 : j0) / kBlockRows;
        return (line(p, b, h, kOfKeys ? j0 : i0)[block / 32].shown >> block % 32 & 1) != 0;
    }
};

// A block that a walk has come to.
struct ShownBlock {
    int number = -1;     // in the line; -1: there is none
    bool whole = false;  // all that the band leaves of it is shown
};

// The blocks [first, end) of a line, those of which something is shown, from the last one back or from the first one
// on.
template <bool kBackwards>
class ShownBlocks {
public:
    __device__ __forceinline__ ShownBlocks() {}
    __device__ __forceinline__ ShownBlocks(const MapWords* of, int first, int end)
        : line_(of), first_(first), end_(end) {
        at_ = kBackwards ? (end - 1) / 32 : first / 32;
        if (first < end) bring();
    }

    // How many there are.
    __device__ __forceinline__ static int count(const MapWords* line, int first, int end) {
        int sum = 0;
        for (int w = first / 32; w * 32 < end; ++w) sum += __popc(within(line[w].shown, w, first, end));
        return sum;
    }

    __device__ __forceinline__ ShownBlock next() {
        while (left_ == 0) {
            at_ += kBackwards ? -1 : 1;
            if (kBackwards ? at_ * 32 + 31 < first_ || at_ < 0 : at_ * 32 >= end_) return {};
            bring();
        }
        const int bit = kBackwards ? 31 - __clz(static_cast<int>(left_)) : __ffs(static_cast<int>(left_)) - 1;
        left_ &= ~(1u << bit);
        return {at_ * 32 + bit, (whole_ >> bit & 1) != 0};
    }

private:
    // The bits of word w whose blocks are among those of the walk.
    __device__ __forceinline__ static unsigned within(unsigned bits, int w, int first, int end) {
        if (first > w * 32) bits &= ~0u << (first - w * 32);
        if (end < w * 32 + 32) bits &= ~0u >> (w * 32 + 32 - end);
        return bits;
    }
    __device__ __forceinline__ void bring() {
        left_ = within(line_[at_].shown, at_, first_, end_);
        whole_ = line_[at_].whole;
    }

    const MapWords* line_ = nullptr;
    int first_ = 0, end_ = 0, at_ = 0;
    unsigned left_ = 0, whole_ = 0;
};

}  // namespace flashtile
