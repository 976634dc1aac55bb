// standard_softmax.h: the steps of standard attention that work on whole rows of scores in memory: P =
// softmax(mask(S)), and backward's dS = P o (dP - rowsum(P o dP)) (FlashAttention paper, Algorithms 0 and 3). Results
// take the place of what they are made of. Memory bounds both; a warp works on a row.
#pragma once

#include "baselines/cuda/kernels/standard_params.h"
#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

// One warp's row: 8 elements a lane at a time.
template <KernelConfig config>
struct ScoreRow {
    using M = Math<config.element>;
    static constexpr int kAtOnce = 8;

    int columns;  // as they lie in memory, a multiple of kScoreColumns

    struct Values {
        float x[kAtOnce];
    };
    __device__ static __forceinline__ Values read(const uint4* from) {
        const uint4 bits = *from;
        const unsigned pairs[] = {bits.x, bits.y, bits.z, bits.w};
        Values values;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const float2 pair = M::unpack(pairs[n]);
            values.x[2 * n] = pair.x;
            values.x[2 * n + 1] = pair.y;
        }
        return values;
    }
    __device__ static __forceinline__ void write(uint4* to, const Values& values) {
        const float(&x)[kAtOnce] = values.x;
        *to = make_uint4(M::pack(x[0], x[1]), M::pack(x[2], x[3]), M::pack(x[4], x[5]), M::pack(x[6], x[7]));
    }
    // Calls body(place of 8 elements, column of the first).
    template <class Body>
    __device__ __forceinline__ void each(Body body) const {
        for (int n = static_cast<int>(lane_id()); n < columns / kAtOnce; n += kLanes) body(n, n * kAtOnce);
    }

    template <class Fold>
    __device__ static __forceinline__ float over_lanes(float x, Fold fold) {
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) x = fold(x, __shfl_xor_sync(~0u, x, lanes));
        return x;
    }
    __device__ static __forceinline__ float sum_over_lanes(float x) {
        return over_lanes(x, [](float a, float b) { return a + b; });
    }
};

// Which row a warp works on, and where it lies.
struct RowPlace {
    Index b, h;
    int i;
    bool exists;

    template <KernelConfig config>
    __device__ static __forceinline__ RowPlace of(const StandardParams& p) {
        const Index row = static_cast<Index>(blockIdx.x) * config.warps + warp_id();
        const Index head = row / p.rows;
        return {head / p.heads, head % p.heads, static_cast<int>(row % p.rows), head < p.all_heads};
    }
};

// A key that the query does not see has P = 0, and so has what fills a row up.
template <KernelConfig config>
__device__ __forceinline__ void standard_softmax(const StandardParams& p) {
    using Row = ScoreRow<config>;
    const RowPlace place = RowPlace::of<config>(p);
    if (!place.exists) return;
    const Row row{round_up(p.columns, kScoreColumns)};
    const int seen = static_cast<int>(p.band.end_key(place.i, p.columns));
    auto* s = reinterpret_cast<uint4*>(rows_of<typename Row::M::Scalar>(p.c, place.b, place.h, place.i));

    // the maximum and the sum in one pass
    float m = kLeastMaximum, l = 0.0f;
    row.each([&](int n, int column) {
        if (column >= seen) return;
        const auto values = Row::read(s + n);
        float highest = m;
#pragma unroll
        for (int e = 0; e < Row::kAtOnce; ++e)
            if (column + e < seen) highest = fmaxf(highest, values.x[e] * kLog2e);
        l *= ptx::exp2(m - highest);
        m = highest;
#pragma unroll
        for (int e = 0; e < Row::kAtOnce; ++e)
            if (column + e < seen) l += ptx::exp2(fmaf(values.x[e], kLog2e, -m));
    });
    const float greatest = Row::over_lanes(m, [](float a, float b) { return fmaxf(a, b); });
    const float sum = Row::sum_over_lanes(l * ptx::exp2(m - greatest));
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    row.each([&](int n, int column) {
        auto values = Row::read(s + n);
#pragma unroll
        for (int e = 0; e < Row::kAtOnce; ++e)
            values.x[e] = column + e < seen ? ptx::exp2(fmaf(values.x[e], kLog2e, -greatest)) * factor : 0.0f;
        Row::write(s + n, values);
    });
}

template <KernelConfig config>
__device__ __forceinline__ void standard_softmax_backward(const StandardParams& params) {
    using Row = ScoreRow<config>;
    using Scalar = typename Row::M::Scalar;
    const RowPlace place = RowPlace::of<config>(params);
    if (!place.exists) return;
    const Row row{round_up(params.columns, kScoreColumns)};
    const auto* p = reinterpret_cast<const uint4*>(rows_of<Scalar>(params.a, place.b, place.h, place.i));
    auto* dp = reinterpret_cast<uint4*>(rows_of<Scalar>(params.c, place.b, place.h, place.i));

    float D = 0.0f;
    row.each([&](int n, int) {
        const auto x = Row::read(p + n), y = Row::read(dp + n);
#pragma unroll
        for (int e = 0; e < Row::kAtOnce; ++e) D = fmaf(x.x[e], y.x[e], D);
    });
    D = Row::sum_over_lanes(D);
    row.each([&](int n, int) {
        const auto x = Row::read(p + n);
        auto y = Row::read(dp + n);
#pragma unroll
        for (int e = 0; e < Row::kAtOnce; ++e) y.x[e] = x.x[e] * (y.x[e] - D);
        Row::write(dp + n, y);
    });
}

}  // namespace flashtile
