// share_schedule.h: which blocks of keys a thread block of Hopper's forward works on where queries are few (section 3.2
// of the paper). The blocks of keys of all sequences, heads and tiles lie end to end, and each thread block has an
// equal share of them: the end of one tile's, those of whole tiles, and the beginning of another's. What a tile's
// pieces come to goes to the workspace, and combine_shares.h folds it. A thread block adds up the sequences' blocks by
// itself before it begins. Where sequences state that they share their first keys (config.prefixes), these keys are
// those of a sequence more, whose queries are the queries of all sequences of the group.
#pragma once

#include "cuda/kernels/parts/schedule/part_places.h"
#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/key_splits.h"

namespace flashtile {

// A sequence's blocks of keys, in all its heads and tiles.
struct SequenceShare {
    unsigned blocks;  // of keys, of each tile: those that any of the sequence's queries sees, or one, to write zeros
    unsigned tiles;   // of rows, of each head
    unsigned of_prefix = 0;  // behind those, blocks of keys of each tile once more: those of a prefix
    bool whole = true;       // a tile with all its blocks has its result

    // Sequences, and groups of them, are numbered as Sequence::make_apart has it.
    template <KernelConfig config>
    __device__ static __forceinline__ SequenceShare of(const KernelParams& p, Index number) {
        if constexpr (config.prefixes)
            if (number >= p.batch) return of_group<config>(Sequence::make_apart<config>(p, number, 0));
        const Sequence seq = Sequence::make<config>(p, number, 0);
        if (config.prefixes && seq.prefix > 0) return of_member<config>(seq);
        return {at_least_one(seen_blocks<config>(seq).count), tiles_of<config>(seq)};
    }
    // The blocks of all heads and tiles: without those of a prefix, and with them.
    template <KernelConfig config>
    __device__ __forceinline__ unsigned own_count(const KernelParams& p) const {
        return static_cast<unsigned>(tile_heads<config>(p)) * tiles * blocks;
    }
    template <KernelConfig config>
    __device__ __forceinline__ unsigned count(const KernelParams& p) const {
        return static_cast<unsigned>(tile_heads<config>(p)) * tiles * (blocks + of_prefix);
    }

private:
    template <KernelConfig config>
    __device__ static __forceinline__ SequenceShare of_group(const Sequence& group) {
        return {static_cast<unsigned>(seen_blocks<config>(group).count), tiles_of<config>(group), 0, false};
    }
    template <KernelConfig config>
    __device__ static __forceinline__ SequenceShare of_member(const Sequence& seq) {
        const int own = seen_blocks<config>(seq.behind_prefix()).count;
        const unsigned prefix = seq.sees_prefix ? 0 : at_least_one(seen_blocks<config>(seq.within_prefix(seq.b)).count);
        return {static_cast<unsigned>(own), tiles_of<config>(seq), prefix, false};
    }
    __device__ static __forceinline__ unsigned at_least_one(int blocks) {
        return static_cast<unsigned>(blocks > 0 ? blocks : 1);
    }
    template <KernelConfig config>
    __device__ static __forceinline__ unsigned tiles_of(const Sequence& seq) {
        return static_cast<unsigned>(query_blocks<config>(seq.seqlen_q));
    }
};

// How many sequences and groups there are; and which of the numbers in KernelParams::ws_first_unit says how many blocks
// of keys are before one's. With prefixes a sequence has two, the second for those of its prefix.
template <KernelConfig config>
__device__ __forceinline__ int all_sequences(const KernelParams& p) {
    return p.batch + (config.prefixes ? static_cast<int>(p.prefixes) : 0);
}
template <KernelConfig config>
__device__ __forceinline__ Index first_unit_of(const KernelParams& p, Index number) {
    return config.prefixes ? number + (number < p.batch ? number : Index{p.batch}) : number;
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
        const int all = all_sequences<config>(p), each = (all + kThreads - 1) / kThreads;
        const int first = smaller(static_cast<int>(threadIdx.x) * each, all), last = smaller(first + each, all);
        unsigned own = 0;
        for (int b = first; b < last; ++b) own = sum_of(own, blocks_of(b));
        unsigned sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned before = __shfl_up_sync(~0u, sum, step);
            if (static_cast<int>(lane_id()) >= step) sum = sum_of(sum, before);
        }
        if (lane_id() == 31) ptx::store_shared(table + 16 + warp_id() * 4, sum);
        __syncthreads();  // every warp's sum is there
        unsigned total = 0, begin = sum - own;
        for (int warp = 0; warp < kWarps; ++warp) {
            const unsigned of_warp = ptx::load_shared_word(table + 16 + warp * 4);
            if (warp < static_cast<int>(warp_id())) begin += of_warp;
            total = sum_of(total, of_warp);
        }
        if (config.prefixes && total == kTooMany) total = 0;
        if (blockIdx.x == 0) {
            unsigned before = begin;
            for (int b = first; b < last; ++b) {
                unsigned* const to = p.ws_first_unit + first_unit_of<config>(p, b);
                const SequenceShare its = SequenceShare::of<config>(p, b);
                to[0] = before;
                if (config.prefixes && b < p.batch) to[1] = before + its.template own_count<config>(p);
                before += its.template count<config>(p);
            }
            if (threadIdx.x == 0) p.ws_first_unit[first_unit_of<config>(p, all)] = total;
        }
        const KeyShares shares = KeyShares::of(total, gridDim.x, p.rounded_shares != 0);
        const unsigned start = shares.first_of(blockIdx.x), behind = shares.first_of(blockIdx.x + 1);
        if (threadIdx.x == 0 && start >= total) ptx::store_shared(table, make_uint4(0, 0, start, start));
        if (start < begin || start >= begin + own) return;
        int b = first;
        for (unsigned count; b + 1 < last && begin + (count = blocks_of(b)) <= start; ++b) begin += count;
        const unsigned end = behind < total ? behind : total;
        ptx::store_shared(table, make_uint4(static_cast<unsigned>(b), begin, start, end));
    }

    // The walk through this thread block's share, which the producer does.
    class Walk {
    public:
        __device__ __forceinline__ explicit Walk(const ShareSchedule& shares) : p(shares.p), table(shares.table) {
            const uint4 found = ptx::load_shared(shares.table);
            b = found.x;
            begin = found.y;
            at = found.z;
            end = found.w;
            if (at < end) its = SequenceShare::of<config>(p, b);
            keep();
        }

        __device__ __forceinline__ bool next(TileNumber& tile) {
            recall();
            if (at >= end) return false;
            const unsigned heads = static_cast<unsigned>(tile_heads<config>(p));
            for (unsigned count; at - begin >= (count = its.template count<config>(p));) {
                begin += count;
                its = SequenceShare::of<config>(p, ++b);
            }
            unsigned place = at - begin, blocks = its.blocks, number = b;
            if constexpr (config.prefixes)
                if (const unsigned own = its.template own_count<config>(p); place >= own) {
                    place -= own;
                    blocks = its.of_prefix;
                    number += static_cast<unsigned>(all_sequences<config>(p));
                }
            const unsigned unit = place / blocks, first = place % blocks;
            const unsigned left = blocks - first, count = left < end - at ? left : end - at;
            at += count;
            tile.head = number * heads + unit / its.tiles;
            tile.block = unit % its.tiles;
            tile.first = first;
            tile.count = count;
            tile.part = TileNumber::kWhole;
            if (count < blocks || !its.whole) tile.part = part_of(number, unit, first == 0);
            keep();
            return true;
        }

    private:
        // The row of the workspace where a part begins.
        __device__ __forceinline__ unsigned part_of(unsigned number, unsigned tile, bool begins) const {
            if constexpr (config.prefixes) {
                const auto places = PartPlaces<config>::of(p, number, tile);
                return static_cast<unsigned>(places.first + blockIdx.x * places.step);
            }
            return static_cast<unsigned>(shared_part(blockIdx.x, begins) * p.part_rows);
        }

        // With prefixes it is in shared memory between tiles, where registers are dear.
        __device__ __forceinline__ void keep() const {
            if constexpr (!config.prefixes) return;
            static_assert(!config.prefixes || config.paged, "the producer is a warp");
            __syncwarp();  // all lanes have read what is written over
            if (lane_id() == 0) {
                ptx::store_shared(table, make_uint4(b, begin, at, end));
                ptx::store_shared(table + 16, make_uint4(its.blocks, its.tiles, its.of_prefix, its.whole));
            }
            __syncwarp();
        }
        __device__ __forceinline__ void recall() {
            if constexpr (!config.prefixes) return;
            const uint4 place = ptx::load_shared(table), share = ptx::load_shared(table + 16);
            b = place.x, begin = place.y, at = place.z, end = place.w;
            its = {share.x, share.y, share.z, share.w != 0};
        }

        const KernelParams& p;
        unsigned table;
        unsigned b, begin;  // the sequence at hand, and how many blocks are before it
        unsigned at, end;   // the next block, and where the share ends
        SequenceShare its;
    };

private:
    // The plan knows that there are fewer. But groups that the list says to overlap have any number of them, and then
    // nothing is done at all.
    static constexpr unsigned kTooMany = 0x7fffffff;
    __device__ static __forceinline__ unsigned sum_of(unsigned a, unsigned b) {
        return config.prefixes && a + b > kTooMany ? kTooMany : a + b;
    }
    __device__ __forceinline__ unsigned blocks_of(int b) const {
        return SequenceShare::of<config>(p, b).template count<config>(p);
    }
};

}  // namespace flashtile
