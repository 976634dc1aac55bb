// query_gradient.h: dQ in fp32 in global memory. It lies unit by unit, and within a unit by tiles of 16 x 8 as the
// accumulators of a warp hold them, so that a warp's additions go to whole cache lines. The backward kernels add to it,
// and backward_finish reads it.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/parts/common/warp_grid.h"
#include "cuda/kernels/ptx/flag.h"
#include "cuda/kernels/ptx/reduce.h"

namespace flashtile {

template <KernelConfig config>
struct QueryGradient {
    static constexpr int kColumns = padded(config, config.head_dim);

    // In a tile of 16 x 8 the four accumulators of a lane are neighbours where one instruction adds four (sm_90);
    // otherwise the same accumulator of the 32 lanes.
    static constexpr bool kFourAtOnce = __CUDA_ARCH__ >= 900;
    static constexpr int kFromLane = kFourAtOnce ? 4 : 1, kFromAccumulator = kFourAtOnce ? 1 : 32;

    __device__ static __forceinline__ Index unit_of(const KernelParams& p, const Sequence& seq, int i0) {
        return seq.h * p.units + seq.first_unit(p, config.packed, config.Br) + i0 / config.Br;
    }
    // This lane's first accumulator in tile (row, column) of the unit of query i0.
    __device__ static __forceinline__ float* at(const KernelParams& p, const Sequence& seq, int i0, int row,
                                                int column) {
        return p.ws_dq + unit_of(p, seq, i0) * (config.Br * kColumns) + step(row, column) + lane_id() * kFromLane;
    }
    __device__ static __forceinline__ float* at(const KernelParams& p, Index unit, int row, int column) {
        return p.ws_dq + unit * (config.Br * kColumns) +
               (static_cast<unsigned>(step(row, column)) + static_cast<unsigned>(lane_id()) * kFromLane);
    }
    // The distance from a tile to the one that is `rows` below and `columns` to the right.
    __device__ static __forceinline__ int step(int rows, int columns) {
        return (rows * (kColumns / 8) + columns) * 128;
    }

    // This lane's four accumulators of a tile, times a factor.
    __device__ static __forceinline__ void load(const float* from, float (&x)[4], float factor) {
        if constexpr (kFourAtOnce) {
            const float4 four = *reinterpret_cast<const float4*>(from);
            x[0] = four.x * factor, x[1] = four.y * factor, x[2] = four.z * factor, x[3] = four.w * factor;
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) x[e] = from[e * kFromAccumulator] * factor;
        }
    }

    // Adds a key block's share, of which dq is the part that starts at tile column `column`. Columns past the last one,
    // which only fill a chunk up, are left out. Where results must repeat, the caller keeps the turns.
    template <int MT, int NT>
    __device__ static __forceinline__ void add(float* to, int column, const Fragments<MT, NT>& dq) {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                if (kColumns % kChunk != 0 && column + n >= kColumns / 8) continue;
                if constexpr (kFourAtOnce) {
                    ptx::red_add4(to + step(m, n), dq.c[m][n]);
                } else {
#pragma unroll
                    for (int e = 0; e < 4; ++e) ptx::red_add(to + step(m, n) + e * kFromAccumulator, dq.c[m][n][e]);
                }
            }
    }
};

// How the warps of the general kernels share dQ.
template <KernelConfig config>
using QueryGrid = WarpGrid<config.Br, padded(config, config.head_dim), config.warps, config.warps_dq>;

// In a deterministic backward pass the key blocks that see a unit of queries add to its dQ in turns, from the last
// block back to the first. They are launched in that order, since a block may wait only for blocks launched before it.
// Under a causal mask each then starts at a unit where it is the first, and stays a step behind the block that it
// follows. Blocks of which a map shows nothing have no turn. Blocks of a pair have the same turn, each at its own half
// of dQ's columns.
template <KernelConfig config>
struct Turn {
    static constexpr int kBlocks = paired_blocks(config);  // which take a turn together
    unsigned* word;                                        // how many have added
    unsigned turn;

    __device__ __forceinline__ Turn(const KernelParams& p, const Sequence& seq, int block, int i0)
        : word(p.ws_turn + QueryGradient<config>::unit_of(p, seq, i0) * kTurnsOfUnit + block % kBlocks) {
        const int last = (seq.end_key<config>(smaller(i0 + config.Br, seq.seqlen_q)) - 1) / (kBlocks * config.Bc);
        int before = last - block / kBlocks;
        if constexpr (config.mask_function && !config.map_of_keys)
            if (p.ws_block_map != nullptr)
                before = ShownBlocks{BlockMap<config>::line(p, seq.b, seq.h, i0)}.count(block + 1, last + 1);
        turn = static_cast<unsigned>(before);
    }

    __device__ __forceinline__ void wait() const {
        while (ptx::load_acquire(word) != turn) __nanosleep(32);
    }
    // One thread calls this, when it has learnt at a barrier that all others have added. The release covers their
    // additions, too.
    __device__ __forceinline__ void pass() const { ptx::store_release(word, turn + 1); }
};

// Which of its head's key blocks a thread block takes. In a causal problem the first has most to do, and so they
// ascend, unless they add in turns.
template <KernelConfig config>
__device__ __forceinline__ int launched_key_block(const HeadBlock& own) {
    return static_cast<int>(config.deterministic ? own.blocks - 1 - own.block() : own.block());
}

}  // namespace flashtile
