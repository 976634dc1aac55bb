// row_end.h: what a row of the softmax comes to once its keys are seen (Algorithm 1, lines 12 to 15): LSE, and the
// factor of O, in which a sink takes its share of the probabilities.
#pragma once

#include "cuda/kernels/parts/common/dropout.h"
#include "cuda/kernels/parts/common/logarithm.h"
#include "cuda/kernels/parts/common/scores.h"

namespace flashtile {

// LSE is computed in fp64, to be exact to a few units of the last place, which m * unit + log l in fp32 would not be. l
// is positive.
__device__ __forceinline__ double lse_of(float m, float l, double unit) {
    return fma(static_cast<double>(m), unit, logarithm(l));
}

// Head h's sink, in natural units.
template <KernelConfig config>
__device__ __forceinline__ double sink_of(const KernelParams& p, Index h) {
    using M = Math<config.element>;
    const Index at = h * p.sinks.stride_head;
    if (p.sinks_fp32 != 0) return static_cast<const float*>(p.sinks.data)[at];
    return M::to_float(static_cast<const typename M::Scalar*>(p.sinks.data)[at]);
}

// A row with a sink, which adds a score to the softmax's denominator: lse = log(e^lse + e^sink), and each probability
// keeps 1 / (1 + e^(sink - lse)) of itself.
struct SinkEnd {
    double lse, kept;

    template <KernelConfig config>
    __device__ static __forceinline__ SinkEnd of(const KernelParams& p, Index h, double lse) {
        const double sink = sink_of<config>(p, h);
        if (sink == -infinity()) return {lse, 1.0};
        const double above = lse - sink;
        const double other = exp(above < 0.0 ? above : -above);  // the smaller of the two, if the larger is 1
        return {(above < 0.0 ? sink : lse) + log1p(other), (above < 0.0 ? other : 1.0) / (1.0 + other)};
    }
};

// What query head h's row comes to, which has m and l of all its keys. A row that saw no key has l = 0.
template <KernelConfig config>
__device__ __forceinline__ double row_lse(const KernelParams& p, Index h, float m, float l) {
    const double lse = l == 0.0f ? -infinity() : lse_of(m, l, natural_unit<config>(p));
    if constexpr (config.sinks) return SinkEnd::of<config>(p, h, lse).lse;
    return lse;
}
// O / l, the only division, is O times this.
template <KernelConfig config>
__device__ __forceinline__ float row_factor(const KernelParams& p, Index h, float m, float l) {
    const float factor = l == 0.0f ? 0.0f : kept_factor<config>(p) / l;
    if constexpr (!config.sinks) return factor;
    const double lse = l == 0.0f ? -infinity() : lse_of(m, l, natural_unit<config>(p));
    return factor * static_cast<float>(SinkEnd::of<config>(p, h, lse).kept);
}

}  // namespace flashtile
