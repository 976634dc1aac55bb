// share_schedule.h: which blocks of keys a thread block of Hopper's forward works on where queries are few (section 3.2
// of the paper). The blocks of keys of all sequences, heads and tiles lie end to end, and each thread block has an
// equal share of them: the end of one tile's, those of whole tiles, and the beginning of another's. What a tile's
// pieces come to goes to the workspace, and combine_shares.h folds it. A thread block adds up the sequences' blocks by
// itself before it begins.
#pragma once

#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/key_splits.h"

namespace flashtile {

// A sequence's blocks of keys, in all its heads and tiles.
struct SequenceShare {
    unsigned blocks;  // of keys, of each tile: those that any of the sequence's queries sees, or one, to write zeros
    unsigned tiles;   // of rows, of each head

    template <KernelConfig config>
    __device__ static __forceinline__ SequenceShare of(const Sequence& seq) {
        const int blocks = seen_blocks<config>(seq).count;
        return {static_cast<unsigned>(blocks > 0 ? blocks : 1),
                static_cast<unsigned>(query_blocks<config>(seq.seqlen_q))};
    }
    template <KernelConfig config>
    __device__ __forceinline__ unsigned count(const KernelParams& p) const {
        return static_cast<unsigned>(tile_heads<config>(p)) * tiles * blocks;
    }
};

// Piece n of a tile is in the n-th thread block of those that share it. A thread block has at most two pieces that are
// not whole tiles: its first, which goes on where another has begun, and its last, which others go on with.
__device__ __forceinline__ Index shared_part(Index thread_block, bool begins) {
    return 2 * thread_block + (begins ? 1 : 0);
}

template <KernelConfig config>
struct ShareSchedule {
    static constexpr int kWarps = config.warps, kThreads = kWarps * 32;
    static constexpr int kBytes = 16 + kWarps * 4;

    const KernelParams& p;
    unsigned table;  // shared address: where this thread block begins, and behind that a sum for each warp

    // All threads call this; a barrier must follow. The first thread block tells combine_shares.h what it needs to
    // know.
    __device__ __forceinline__ void find() const {
        // a thread adds up some neighbouring sequences
        const int each = (p.batch + kThreads - 1) / kThreads;
        const int first = smaller(static_cast<int>(threadIdx.x) * each, p.batch), last = smaller(first + each, p.batch);
        unsigned own = 0;
        for (int b = first; b < last; ++b) own += blocks_of(b);
        unsigned sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned before = __shfl_up_sync(~0u, sum, step);
            if (static_cast<int>(lane_id()) >= step) sum += before;
        }
        if (lane_id() == 31) ptx::store_shared(table + 16 + warp_id() * 4, sum);
        __syncthreads();  // every warp's sum is there
        unsigned total = 0, begin = sum - own;
        for (int warp = 0; warp < kWarps; ++warp) {
            const unsigned of_warp = ptx::load_shared_word(table + 16 + warp * 4);
            if (warp < static_cast<int>(warp_id())) begin += of_warp;
            total += of_warp;
        }
        if (blockIdx.x == 0) {
            unsigned before = begin;
            for (int b = first; b < last; ++b) {
                p.ws_first_unit[b] = before;
                before += blocks_of(b);
            }
            if (threadIdx.x == 0) p.ws_first_unit[p.batch] = total;
        }
        const unsigned share = KeyShares::of(total, gridDim.x);
        const unsigned start = blockIdx.x * share;
        if (threadIdx.x == 0 && start >= total) ptx::store_shared(table, make_uint4(0, 0, start, start));
        if (start < begin || start >= begin + own) return;
        int b = first;
        for (unsigned count; b + 1 < last && begin + (count = blocks_of(b)) <= start; ++b) begin += count;
        const unsigned end = start + share < total ? start + share : total;
        ptx::store_shared(table, make_uint4(static_cast<unsigned>(b), begin, start, end));
    }

    // The walk through this thread block's share, which one thread does.
    class Walk {
    public:
        __device__ __forceinline__ explicit Walk(const ShareSchedule& shares) : p(shares.p) {
            const uint4 found = ptx::load_shared(shares.table);
            b = found.x;
            begin = found.y;
            at = found.z;
            end = found.w;
            if (at < end) its = SequenceShare::of<config>(Sequence::make<config>(p, b, 0));
        }

        __device__ __forceinline__ bool next(TileNumber& tile) {
            if (at >= end) return false;
            const unsigned heads = static_cast<unsigned>(tile_heads<config>(p));
            for (unsigned count; at - begin >= (count = its.template count<config>(p));) {
                begin += count;
                its = SequenceShare::of<config>(Sequence::make<config>(p, ++b, 0));
            }
            const unsigned unit = (at - begin) / its.blocks, first = (at - begin) % its.blocks;
            const unsigned left = its.blocks - first, count = left < end - at ? left : end - at;
            at += count;
            tile.head = b * heads + unit / its.tiles;
            tile.block = unit % its.tiles;
            tile.first = first;
            tile.count = count;
            tile.part =
                count == its.blocks ? TileNumber::kWhole : static_cast<unsigned>(shared_part(blockIdx.x, first == 0));
            return true;
        }

    private:
        const KernelParams& p;
        unsigned b, begin;  // the sequence at hand, and how many blocks are before it
        unsigned at, end;   // the next block, and where the share ends
        SequenceShare its;
    };

private:
    __device__ __forceinline__ unsigned blocks_of(int b) const {
        return SequenceShare::of<config>(Sequence::make<config>(p, b, 0)).template count<config>(p);
    }
};

}  // namespace flashtile
