// combine.h: the end of a forward pass whose keys were split, or shared out. The parts of a row are folded as Algorithm
// 1 folds blocks of keys: m is the greatest, and l and O are scaled to it. A thread block has one row. Neighbouring
// lanes share its columns, and the groups of such lanes share its parts, because parts are far away in memory and may
// be many. A row that was not split has its result already.
#pragma once

#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/parts/common/row_end.h"
#include "cuda/kernels/parts/schedule/row_parts.h"
#include "cuda/kernels/ptx/dependent_launch.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

template <KernelConfig config>
__device__ __forceinline__ void combine_shares(const KernelParams& p) {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    constexpr int kPiece = config.vector_bytes / static_cast<int>(sizeof(Scalar)), kRowLanes = row_lanes(config);
    constexpr int kThreads = config.warps * 32, kGroups = kThreads / kRowLanes;
    ptx::wait_for_launch_before();
    const Index n = blockIdx.x, h = n % p.heads, i = n / p.heads % p.part_queries, b = n / p.heads / p.part_queries;
    const Sequence seq = Sequence::make<config>(p, b, h);
    if (i >= seq.seqlen_q) return;
    const RowParts<config> parts(p, seq, static_cast<int>(i));
    if (parts.complete) return;
    const int count = parts.count();

    // every warp finds m and l by itself
    const float2* const ml = reinterpret_cast<const float2*>(p.ws_part_ml);
    const int lane = static_cast<int>(lane_id());
    float m = -infinity();
    for (int part = lane; part < count; part += 32) m = fmaxf(m, ml[parts[part]].x);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
    const auto alpha_of = [&](int part) {
        const float below = ml[parts[part]].x - m;  // in the units of m
        return ptx::exp2(own_units<config>() ? below * log2_factor<config>(p) : below);
    };
    float l = 0.0f;
    for (int part = lane; part < count; part += 32) l = fmaf(ml[parts[part]].y, alpha_of(part), l);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);

    float* const sums = reinterpret_cast<float*>(shared_memory);                   // O of a warp's parts
    for (int first = 0; first < config.head_dim_v; first += kRowLanes * kPiece) {  // all lanes: they exchange sums
        const int column = first + lane % kRowLanes * kPiece;
        float O[kPiece] = {};
        if (column < config.head_dim_v) {
#pragma unroll 4
            for (int part = static_cast<int>(threadIdx.x) / kRowLanes; part < count; part += kGroups) {
                const float alpha = alpha_of(part);
                const auto piece = *reinterpret_cast<const Piece<float, kPiece>*>(
                    p.ws_part_o + parts[part] * config.head_dim_v + column);
#pragma unroll
                for (int c = 0; c < kPiece; ++c) O[c] = fmaf(piece.x[c], alpha, O[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < kPiece; ++c) {
#pragma unroll
            for (int step = kRowLanes; step < 32; step *= 2) O[c] += __shfl_xor_sync(~0u, O[c], step);
            if (lane < kRowLanes && column < config.head_dim_v) sums[warp_id() * config.head_dim_v + column + c] = O[c];
        }
    }
    __syncthreads();  // all warps' sums are there
    const float factor = row_factor<config>(p, h, m, l);
    Scalar* const out = rows_of<Scalar>(p.out, seq.batch_row, h, seq.first_q + i);
    for (int column = static_cast<int>(threadIdx.x) * kPiece; column < config.head_dim_v; column += kThreads * kPiece) {
        Piece<Scalar, kPiece> piece;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) {
            float O = 0.0f;
            for (int warp = 0; warp < config.warps; ++warp) O += sums[warp * config.head_dim_v + column + c];
            piece.x[c] = M::from_float(O * factor);
        }
        *reinterpret_cast<Piece<Scalar, kPiece>*>(out + column) = piece;
    }
    if (config.lse && threadIdx.x == 0)
        rows_of<float>(p.lse, seq.batch_row, h, seq.first_q)[i * p.lse.stride_row] =
            static_cast<float>(row_lse<config>(p, h, m, l));
}

}  // namespace flashtile
