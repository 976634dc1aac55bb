// key_block_order.h: which block of keys, of which sequence and key head, a thread block of Hopper's backward works on.
// Thread blocks start in the order of their numbers, so those with most to do come first.
#pragma once

#include "cuda/kernels/parts/common/warp_grid.h"
#include "cuda/kernels/parts/schedule/packed_units.h"
#include "shared/kernel_layout.h"

namespace flashtile {

template <KernelConfig config>
struct KeyBlockOrder {
    static constexpr int kRows = paired_blocks(config) * config.Bc;

    // False where there is no such block.
    __device__ static __forceinline__ bool find(const KernelParams& p, HeadBlock& own) {
        const unsigned number = blockIdx.x / cluster_blocks(config), heads = static_cast<unsigned>(p.kv_heads);
        if constexpr (!config.packed_keys()) {
            const auto blocks = static_cast<unsigned>((p.seqlen_k + kRows - 1) / kRows);
            own = HeadBlock::in_sections(blocks, p.batch * heads, p.section_heads, number);
            return true;
        }
        Run run;
        if (!(p.batch <= 32 ? among_few(p, number, heads, run) : among_many(p, number, heads, run))) return false;
        own = HeadBlock::in_sections(run.blocks, heads, p.section_heads, number - run.before * heads);
        own.move_heads(run.sequence * heads);
        return true;
    }

private:
    // A sequence's blocks of a head, and how many are before them.
    struct Run {
        unsigned sequence, before, blocks;
    };

    // The longest sequence first. A lane has a sequence; all warps find the same.
    __device__ static __forceinline__ bool among_few(const KernelParams& p, unsigned number, unsigned heads, Run& run) {
        const int lane = static_cast<int>(lane_id());
        unsigned blocks = 0, before = 0;
        if (lane < p.batch)
            blocks = static_cast<unsigned>((Sequence::make<config>(p, lane, 0).rows_k + kRows - 1) / kRows);
        for (int other = 0; other < p.batch; ++other) {
            const unsigned its = __shfl_sync(~0u, blocks, other);
            if (its > blocks || (its == blocks && other < lane)) before += its;
        }
        const unsigned mine = __ballot_sync(~0u, number >= before * heads && number < (before + blocks) * heads);
        if (mine == 0) return false;
        const int sequence = __ffs(static_cast<int>(mine)) - 1;
        run = {static_cast<unsigned>(sequence), __shfl_sync(~0u, before, sequence), __shfl_sync(~0u, blocks, sequence)};
        return true;
    }

    // In the batch's order.
    __device__ static __forceinline__ bool among_many(const KernelParams& p, unsigned number, unsigned heads,
                                                      Run& run) {
        const PackedUnits units{p.cu_seqlens_k, p.total_k, kRows, p.batch};
        const Index wanted = number / heads, b = units.sequence_of(wanted);
        const Index before = units.before(b), blocks = units.before(b + 1) - before;
        // cumulative lengths may not be in order
        if (wanted < before || wanted >= before + blocks) return false;
        run = {static_cast<unsigned>(b), static_cast<unsigned>(before), static_cast<unsigned>(blocks)};
        return true;
    }
};

}  // namespace flashtile
