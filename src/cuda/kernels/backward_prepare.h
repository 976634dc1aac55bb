// backward_prepare.h: what backward needs of every query before it starts (Algorithm 2, lines 4 and 5): D = rowsum(dO *
// O) - dlse, where dlse enters because the gradient of LSE is P; LSE in log2 and in natural units; and dQ = 0. Rows
// that see no key, and rows that only fill a unit up, get LSE = +inf, which makes all their P 0.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

// One thread block works on one unit of Br queries of one head.
template <KernelConfig config>
__device__ __forceinline__ void backward_prepare(const KernelParams& p) {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    const HeadBlock own(p.seqlen_q, config.Br);
    const Sequence seq = own.of_queries<config>(p);
    const int i0 = static_cast<int>(own.block()) * config.Br;
    if (i0 >= seq.seqlen_q) return;
    const Index unit = seq.h * p.units + seq.first_unit(p, config.packed, config.Br) + i0 / config.Br;

    float* dq = p.ws_dq + unit * (config.Br * padded(config, config.head_dim));
    for (int n = static_cast<int>(threadIdx.x); n < config.Br * padded(config, config.head_dim) / 4;
         n += config.warps * 32)
        reinterpret_cast<float4*>(dq)[n] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (threadIdx.x == 0) p.ws_turn[unit] = 0;

    const Scalar* out = rows_of<Scalar>(p.out, seq.batch_row, seq.h, seq.first_q);
    const Scalar* dout = rows_of<Scalar>(p.dout, seq.batch_row, seq.h, seq.first_q);
    for (int row = static_cast<int>(warp_id()); row < config.Br; row += config.warps) {
        const int i = i0 + row;
        float lse = infinity(), natural = infinity(), D = 0.0f;
        if (i < seq.seqlen_q) {
            const float given = rows_of<float>(p.lse, seq.batch_row, seq.h, seq.first_q)[i * p.lse.stride_row];
            if (given != -infinity()) {
                for (int c = static_cast<int>(lane_id()); c < config.head_dim_v; c += 32)
                    D = fmaf(M::to_float(out[i * p.out.stride_row + c]), M::to_float(dout[i * p.dout.stride_row + c]),
                             D);
                for (int lanes = 16; lanes > 0; lanes /= 2) D += __shfl_xor_sync(~0u, D, lanes);
                if (p.dlse.data != nullptr)
                    D -= rows_of<float>(p.dlse, seq.batch_row, seq.h, seq.first_q)[i * p.dlse.stride_row];
                natural = given;
                // the unit is the factor that scores are multiplied by, as it was rounded
                lse = static_cast<float>(static_cast<double>(given) / p.natural_unit);
            }
        }
        if (lane_id() == 0) {
            const Index at = unit * config.Br + (row ^ p.row_flip);
            p.ws_lse[at] = lse;
            p.ws_lse_natural[at] = natural;
            p.ws_D[at] = D;
        }
    }
}

}  // namespace flashtile
