// backward_sinks.h: the gradients of attention sinks. A sink is a score without a value, so of dS = P (dP - D + dlse)
// its row has P_sink (dlse - D), and dsink is the sum over all queries of its head. LSE counts the sink, so that the
// other gradients need not know of it.
#pragma once

#include "cuda/kernels/parts/common/row_end.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one head, and a warp on kRows of its queries at a time. What a thread adds up depends on
// the shapes alone, so that the bits repeat.
template <KernelConfig config>
__device__ __forceinline__ void backward_sinks(const KernelParams& p) {
    using M = Math<config.element>;
    constexpr int kRows = 512;
    const Index h = blockIdx.x, pieces = (p.seqlen_q + kRows - 1) / kRows;
    const double sink = sink_of<config>(p, h);
    double sum = 0.0;
    for (Index n = warp_id(); n < p.batch * pieces; n += config.warps) {
        const Sequence seq = Sequence::make<config>(p, n / pieces, h);
        const Index first = (h * p.units + seq.first_unit(p, config.packed, config.Br)) * config.Br;
        const int i0 = static_cast<int>(n % pieces) * kRows, i1 = smaller(i0 + kRows, seq.seqlen_q);
        for (int i = i0 + static_cast<int>(lane_id()); i < i1; i += kLanes) {
            const Index at = first + (i ^ p.row_flip);
            sum -= exp(sink - static_cast<double>(p.ws_lse_natural[at])) * static_cast<double>(p.ws_D[at]);
        }
    }
    double* const sums = reinterpret_cast<double*>(shared_memory);
    sums[threadIdx.x] = sum;
    for (unsigned half = config.warps * kLanes / 2; half > 0; half /= 2) {
        __syncthreads();  // the sums that are added here have been written
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x != 0) return;
    const float dsink = static_cast<float>(sums[0]);
    const Index at = h * p.dsinks.stride_head;
    if (p.dsinks_fp32 != 0)
        static_cast<float*>(p.dsinks.data)[at] = dsink;
    else
        static_cast<typename M::Scalar*>(p.dsinks.data)[at] = M::from_float(dsink);
}

}  // namespace flashtile
