// tile_scales.h: the scales of e4m3 tensors in the general forward, whose tiles hold e4m3 numbers as 16-bit ones. S is
// multiplied by the scales of q and k. O is kept in units of one scale of V, and where blocks of keys have scales of
// their own, P is multiplied by the quotient, so that in fp16 it stays in range.
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/scales.h"

namespace flashtile {

template <KernelConfig config, int MT, int NT, int OT>
struct TileScales {
    static constexpr bool kAny = config.converts_kv;

    const float* of_keys;  // shared memory: K's scales of the block at hand, and behind them V's; only of blocks
    float factor[MT][2];   // q's scale, times k's where all keys share that
    float values = 0.0f;   // O's unit

    // For the rows of a warp, of which those from `end` on do not exist.
    template <class HeadOf>
    __device__ __forceinline__ void start(const KernelParams& p, const Sequence& seq, int warp_i0, int end,
                                          HeadOf head_of) {
        if constexpr (!kAny) return;
        float of_all_keys = 1.0f;
        if constexpr (!config.scale_blocks) {
            of_all_keys = key_scales<config>(p, p.k_scale, seq).of_all();
            values = key_scales<config>(p, p.v_scale, seq).of_all();
        }
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = smaller(warp_i0 + Place::row(m, 2 * half), end - 1);
                factor[m][half] = of_all_keys;
                if constexpr (config.converts_q)
                    factor[m][half] *= query_scales<config>(p, seq, head_of(row)).at(p, query_of<config>(row));
            }
    }

    // The scores become those of the tensors that q and k stand for.
    __device__ __forceinline__ void scale_scores(Fragments<MT, NT>& s) const {
        if constexpr (!kAny) return;
        each_score<MT, NT>([&](int m, int n, int e) {
            s.c[m][n][e] *= factor[m][e / 2];
            if constexpr (config.scale_blocks) s.c[m][n][e] *= of_keys[Place::column(n, e)];
        });
    }

    // P, whose sum has been taken, becomes the factors of e4m3 numbers of V.
    __device__ __forceinline__ void scale_probabilities(Fragments<MT, NT>& p, Fragments<MT, OT>& o) {
        if constexpr (!kAny || !config.scale_blocks) return;
        constexpr float kLeastQuotient = 0.25f;
        const float* const scales = of_keys + config.Bc;
        float most = kLeastScale;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) most = fmaxf(most, scales[Place::column(n, e)]);
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        if (most > values || (most > kLeastScale && most < kLeastQuotient * values)) {
            const float quotient = values / most;
            each_score<MT, OT>([&](int m, int n, int e) { o.c[m][n][e] *= quotient; });
            values = most;
        }
        const float inverse = 1.0f / values;
        each_score<MT, NT>([&](int m, int n, int e) {
            // the scale of a hidden key may be anything
            if (p.c[m][n][e] != 0.0f) p.c[m][n][e] *= scales[Place::column(n, e)] * inverse;
        });
    }

    __device__ __forceinline__ float of_output(float x) const {
        return kAny ? x * values : x;
    }
};

}  // namespace flashtile
