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

    // Key block `block` adds its share. Where results must repeat, the key blocks that see a unit do so in turns;
    // `synchronise` joins the threads that add.
    template <class Synchronise>
    __device__ static __forceinline__ void add(const KernelParams& p, const Sequence& seq, int block, int i0,
                                               const typename Grid::Accumulators& dq, Synchronise synchronise) {
        const Index unit = unit_of(p, seq, i0);
        if constexpr (config.deterministic) {
            const auto turn = static_cast<unsigned>(block - seq.first_key<config>(i0) / config.Bc);
            if (threadIdx.x == 0)
                while (ptx::load_acquire(p.ws_turn + unit) != turn) __nanosleep(32);
            synchronise();  // all before have added
        }
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
        if constexpr (config.deterministic) {
            __threadfence();
            synchronise();  // all of this block's additions are done
            if (threadIdx.x == 0)
                ptx::store_release(p.ws_turn + unit,
                                   static_cast<unsigned>(block - seq.first_key<config>(i0) / config.Bc) + 1);
        }
    }
};

}  // namespace flashtile
