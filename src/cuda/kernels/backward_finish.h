// backward_finish.h: converts dQ from fp32 to q's type, times the scale, and stores it (Algorithm 2, line 19).
#pragma once

#include "cuda/kernels/parts/common/query_gradient.h"
#include "cuda/kernels/parts/mma/tile_store.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one unit of Br queries of one head. `config` has the units of dQ that backward has.
template <KernelConfig config>
__device__ __forceinline__ void backward_finish(const KernelParams& p) {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Gradient = QueryGradient<config>;
    using Grid = QueryGrid<config>;
    const HeadBlock own(p.seqlen_q, config.Br);
    const Sequence seq = own.of_queries<config>(p);
    const int i0 = static_cast<int>(own.block()) * config.Br;
    if (i0 >= seq.seqlen_q) return;

    constexpr int kPitch = pitch(config, config.head_dim);
    Scalar* tile = reinterpret_cast<Scalar*>(shared_memory);
    const float* from = Gradient::at(p, seq, i0, Grid::row() / 16, Grid::column() / 8);
    typename Grid::Accumulators dq;
#pragma unroll
    for (int m = 0; m < Grid::MT; ++m)
#pragma unroll
        for (int n = 0; n < Grid::NT; ++n) Gradient::load(from + Gradient::step(m, n), dq.c[m][n], p.scale);
    write_fragments<config.element, kPitch>(dq, tile + Grid::row() * kPitch + Grid::column());
    __syncthreads();
    store_tile<Scalar, config.Br, config.head_dim, kPitch, config.warps * 32, config.vector_bytes>(
        tile, rows_of<Scalar>(p.dq, seq.batch_row, seq.h, seq.first_q) + i0 * p.dq.stride_row, p.dq.stride_row,
        seq.seqlen_q - i0, threadIdx.x);
}

}  // namespace flashtile
