// query_gradient.h: dQ in fp32 in global memory, unit by unit, in the order of the accumulators that the warps hold, so
// that a warp's additions go to whole lines. backward_sm80 adds to it, backward_finish reads it.
#pragma once

#include "cuda/kernels/parts/gradient_tile.h"
#include "cuda/kernels/ptx/flag.h"
#include "cuda/kernels/ptx/reduce.h"

namespace flashtile {

template <KernelConfig config>
struct QueryGradient {
    static constexpr int kWarps = config.kernel == Kernel::backward_sm90 ? config.warps - 4 : config.warps;
    using Grid = WarpGrid<config.Br, padded(config, config.head_dim), kWarps, config.warps_dq>;

    // Where this lane's accumulators of tile (m, n) lie: the four of a lane together where one instruction adds four
    // (sm_90), otherwise those of the 32 lanes.
    static constexpr bool kFourAtOnce = __CUDA_ARCH__ >= 900;
    __device__ static __forceinline__ float* at(const KernelParams& p, Index unit, int m, int n, int e) {
        float* tile = p.ws_dq + unit * (config.Br * padded(config, config.head_dim)) +
                      ((static_cast<int>(warp_id()) * Grid::MT + m) * Grid::NT + n) * 128;
        return tile + (kFourAtOnce ? lane_id() * 4 + e : e * 32 + lane_id());
    }

    __device__ static __forceinline__ Index unit_of(const KernelParams& p, const Sequence& seq, int i0) {
        return seq.h * p.units + seq.first_unit(p, config.packed, config.Br) + i0 / config.Br;
    }

    // A key block adds its share. Where results must repeat, the caller sees to the turns.
    __device__ static __forceinline__ void add(const KernelParams& p, const Sequence& seq, int i0,
                                               const typename Grid::Accumulators& dq) {
        const Index unit = unit_of(p, seq, i0);
#pragma unroll
        for (int m = 0; m < Grid::MT; ++m)
#pragma unroll
            for (int n = 0; n < Grid::NT; ++n) {
                if constexpr (kFourAtOnce) {
                    ptx::red_add4(at(p, unit, m, n, 0), dq.c[m][n]);
                } else {
#pragma unroll
                    for (int e = 0; e < 4; ++e) ptx::red_add(at(p, unit, m, n, e), dq.c[m][n][e]);
                }
            }
    }
};

// In a deterministic backward pass the key blocks that see a unit of queries add to its dQ in turns, from the last
// block back to the first. So they are launched, since a block may wait only for those launched before it; and under a
// causal mask each then starts at a unit where it is the first, and stays a step behind the block that it follows.
template <KernelConfig config>
struct Turn {
    unsigned* word;  // how many have added
    unsigned turn;

    __device__ __forceinline__ Turn(const KernelParams& p, const Sequence& seq, int block, int i0)
        : word(p.ws_turn + QueryGradient<config>::unit_of(p, seq, i0)),
          turn(static_cast<unsigned>((seq.end_key<config>(smaller(i0 + config.Br, seq.seqlen_q)) - 1) / config.Bc -
                                     block)) {}

    __device__ __forceinline__ void wait() const {
        while (ptx::load_acquire(word) != turn) __nanosleep(32);
    }
    // To be called by one thread, which knows that all others have added.
    __device__ __forceinline__ void pass() const {
        __threadfence();
        ptx::store_release(word, turn + 1);
    }
};

// Which of a head's key blocks the n-th of its thread blocks takes. Ascending: in a causal problem the first has most
// to do.
template <KernelConfig config>
__device__ __forceinline__ int launched_key_block(Index n, Index blocks) {
    return static_cast<int>(config.deterministic ? blocks - 1 - n : n);
}

}  // namespace flashtile
