// combine.h: the end of a forward pass whose keys were split. The splits of a row are folded in their order as
// Algorithm 1 folds blocks of keys: m is the greatest, and l and O are scaled to it. Neighbouring lanes share a row,
// each a piece of its columns. A sequence with one split has its results already.
#pragma once

#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/parts/common/row_end.h"
#include "cuda/kernels/parts/schedule/key_split.h"

namespace flashtile {

template <KernelConfig config>
__device__ __forceinline__ void combine(const KernelParams& p) {
    using M = Math<output_element(config)>;
    using Scalar = typename M::Scalar;
    constexpr int kPiece = config.vector_bytes / size_of(config.element), kRowLanes = row_lanes(config);
    const Index n = Index{blockIdx.x} * (config.warps * 32 / kRowLanes) + threadIdx.x / kRowLanes;
    const Index h = n % p.heads, i = n / p.heads % p.part_queries, b = n / p.heads / p.part_queries;
    if (b >= p.batch) return;
    const Sequence seq = Sequence::make<config>(p, b, h);
    if (i >= seq.seqlen_q) return;
    const int splits = KeySplit::of(p, seq, 0).count;
    if (splits <= 1) return;

    const Index first_part = part_of(p, b, i, h, 0);
    const float2* const ml = reinterpret_cast<const float2*>(p.ws_part_ml) + first_part;
    float m = ml[0].x;
    for (int split = 1; split < splits; ++split) m = fmaxf(m, ml[split].x);
    const auto alpha_of = [&](int split) {
        const float below = ml[split].x - m;  // in the units of m
        return ptx::exp2(own_units<config>() ? below * log2_factor<config>(p) : below);
    };
    float l = 0.0f;
    for (int split = 0; split < splits; ++split) l = fmaf(ml[split].y, alpha_of(split), l);
    const float factor = row_factor<config>(p, h, m, l);

    Scalar* const out = rows_of<Scalar>(p.out, seq.batch_row, h, seq.first_q + i);
    const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
    for (int column = lane * kPiece; column < config.head_dim_v; column += kRowLanes * kPiece) {
        float O[kPiece] = {};
#pragma unroll 2
        for (int split = 0; split < splits; ++split) {
            const float alpha = alpha_of(split);
            const auto piece = *reinterpret_cast<const Piece<float, kPiece>*>(
                p.ws_part_o + (first_part + split) * config.head_dim_v + column);
#pragma unroll
            for (int c = 0; c < kPiece; ++c) O[c] = fmaf(piece.x[c], alpha, O[c]);
        }
        Piece<Scalar, kPiece> piece;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) piece.x[c] = M::from_float(O[c] * factor);
        *reinterpret_cast<Piece<Scalar, kPiece>*>(out + column) = piece;
    }
    if (config.lse && lane == 0)
        rows_of<float>(p.lse, seq.batch_row, h, seq.first_q)[i * p.lse.stride_row] =
            static_cast<float>(row_lse<config>(p, h, m, l));
}

}  // namespace flashtile
