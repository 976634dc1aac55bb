// backward_prepare.h: what backward needs of every query before it starts (Algorithm 2, lines 4 and 5): D = rowsum(dO *
// O) - dlse, where dlse enters because the gradient of LSE is P; LSE in log2 and in natural units; and dQ = 0. Rows
// that see no key, and rows that only fill a unit up, get LSE = +inf, which makes all their P 0.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/piece.h"
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
    if (threadIdx.x < kTurnsOfUnit) p.ws_turn[unit * kTurnsOfUnit + threadIdx.x] = 0;

    const Scalar* out = rows_of<Scalar>(p.out, seq.batch_row, seq.h, seq.first_q);
    const Scalar* dout = rows_of<Scalar>(p.dout, seq.batch_row, seq.h, seq.first_q);
    const float* lse = rows_of<float>(p.lse, seq.batch_row, seq.h, seq.first_q);
    // Neighbouring lanes share a row, and a warp has several rows at a time. First all that is far away is on its way.
    constexpr int kPiece = config.vector_bytes / static_cast<int>(sizeof(Scalar)), kRowLanes = row_lanes(config);
    constexpr int kRowsAtOnce = 32 / kRowLanes * config.warps, kTimes = (config.Br + kRowsAtOnce - 1) / kRowsAtOnce;
    using Vector = Piece<Scalar, kPiece>;
    const int lane = static_cast<int>(threadIdx.x) % kRowLanes, own_row = static_cast<int>(threadIdx.x) / kRowLanes;
    float given[kTimes], D[kTimes];
#pragma unroll
    for (int n = 0; n < kTimes; ++n) {
        const int row = n * kRowsAtOnce + own_row, i = i0 + row;
        const bool is_query = row < config.Br && i < seq.seqlen_q;
        given[n] = is_query ? lse[i * p.lse.stride_row] : -infinity();
        D[n] = 0.0f;
        if (!is_query) continue;
        for (int c = lane * kPiece; c < config.head_dim_v; c += kRowLanes * kPiece) {
            const auto x = *reinterpret_cast<const Vector*>(out + i * p.out.stride_row + c);
            const auto y = *reinterpret_cast<const Vector*>(dout + i * p.dout.stride_row + c);
#pragma unroll
            for (int e = 0; e < kPiece; ++e) D[n] = fmaf(M::to_float(x.x[e]), M::to_float(y.x[e]), D[n]);
        }
    }
#pragma unroll
    for (int n = 0; n < kTimes; ++n) {
        const int row = n * kRowsAtOnce + own_row, i = i0 + row;
#pragma unroll
        for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2) D[n] += __shfl_xor_sync(~0u, D[n], lanes);
        if (lane != 0 || row >= config.Br) continue;
        const bool sees = given[n] != -infinity();  // else what its D came to does not count
        if (sees && p.dlse.data != nullptr)
            D[n] -= rows_of<float>(p.dlse, seq.batch_row, seq.h, seq.first_q)[i * p.dlse.stride_row];
        const Index at = unit * config.Br + (row ^ p.row_flip);
        // the unit is the factor that scores are multiplied by, as it was rounded
        p.ws_lse[at] = sees ? static_cast<float>(static_cast<double>(given[n]) / p.natural_unit) : infinity();
        p.ws_lse_natural[at] = sees ? given[n] : infinity();
        p.ws_D[at] = sees ? D[n] : 0.0f;
    }
}

}  // namespace flashtile
