// softmax.h: the online softmax of FlashAttention-2 (Algorithm 1, lines 9 and 10) on one warp's accumulators. Each lane
// keeps m and l of the rows that it holds; l is its own columns' share until the end.
#pragma once

#include "cuda/kernels/parts/common/row_end.h"
#include "cuda/kernels/parts/common/row_pair.h"
#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

// m is in log2 units, those of factor S, or, with kOwnUnits, in the scores' own. Where options have worked on scores, a
// bias may move a whole row by 1e10; the row would lose all its digits in the rounding of factor m, while S - m is
// exact. And in fp32, the P of a row that sees one key alone would not be exactly 1 in log2 units.
// A row's greatest P is 2^kRise where the row has just been searched for its maximum: m lies so far below the maximum.
template <int MT, bool kOwnUnits, int kRise = 0>
struct Softmax {
    static constexpr float kHighest = 1 << kRise;

    RowPair m[MT];
    float l[MT][2];
    float alpha[MT][2];  // valid where `grows`
    bool grows;          // any row of the warp has a new maximum

    // This lane's share of a block's rowsum(P).
    struct RowSums {
        float of[MT][2];
    };

    __device__ __forceinline__ void start(float factor) {
        // It stays in fp32's range, however small the factor is, so that -inf - -inf cannot arise.
        const float least = kOwnUnits ? fmaxf(kLeastMaximum / factor, -3e38f) : kLeastMaximum;
#pragma unroll
        for (int n = 0; n < MT; ++n) {
            m[n].set(least, least);
            l[n][0] = l[n][1] = 0.0f;
        }
    }

    // m_new = max(m, rowmax(factor S)), and alpha = 2^(m - m_new) by which l has been multiplied and O must be.
    // The maximum may lag: P is then at most kMostLag, and most blocks rescale nothing (FlashAttention-4's lazy
    // rescale). Where it does not lag, a row's greatest P is 1, which rounding to 16 bits keeps, as l does; and a row
    // whose maximum stays is multiplied by exactly 1, so that its bits do not depend on the other rows of the warp.
    // Columns from 8 kGroup `seen` on count as hidden.
    template <bool kLazy, int kGroup = 32, int NT>
    __device__ __forceinline__ void find_maximum(const Fragments<MT, NT>& s, float factor, int seen = 1) {
        const float slack = !kLazy ? 0.0f : (kOwnUnits ? kMostLag / factor : kMostLag);
        float highest[MT][2];
        bool row_grows = false;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) highest[n][half] = seen > 0 ? s.c[n][0][2 * half] : -infinity();
#pragma unroll
        for (int first = 0; first < NT; first += kGroup) {
            if (first / kGroup >= seen) continue;
#pragma unroll
            for (int n = 0; n < MT; ++n)
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int column = first; column < NT && column < first + kGroup; ++column)
#pragma unroll
                        for (int e = 2 * half; e < 2 * half + 2; ++e)
                            highest[n][half] = fmaxf(highest[n][half], s.c[n][column][e]);
        }
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float x = highest[n][half];
                x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
                x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
                highest[n][half] = kOwnUnits ? x : x * factor;
                row_grows = row_grows || highest[n][half] > m[n][half] + slack;
            }
        grows = __any_sync(~0u, row_grows);
        if (!grows) return;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) move(n, half, fmaxf(m[n][half], highest[n][half]), factor);
    }

    // O = diag(alpha) O
    template <int OT>
    __device__ __forceinline__ void rescale(Fragments<MT, OT>& o) const {
        if (!grows) return;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int column = 0; column < OT; ++column)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) o.c[n][column][e] *= alpha[n][half];
    }

    // S becomes P = 2^(factor S - m); l = l + rowsum(P).
    template <int NT>
    __device__ __forceinline__ RowSums exponentiate(Fragments<MT, NT>& s, float factor) {
        RowSums sum{};
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                each_of_row(s, n, half, [&](float& p) {
                    p = ptx::exp2(kOwnUnits ? (p - m[n][half]) * factor : fmaf(p, factor, -m[n][half]));
                    sum.of[n][half] += p;
                });
                l[n][half] += sum.of[n][half];
            }
        return sum;
    }
    // The same where columns from 8 kGroup `seen` on are hidden: their P is 0.
    template <int kGroup, int NT>
    __device__ __forceinline__ void exponentiate_seen(Fragments<1, NT>& s, float factor, int seen) {
#pragma unroll
        for (int first = 0; first < NT; first += kGroup) {
            constexpr int kTiles = kGroup < NT ? kGroup : NT;
            if (first / kGroup < seen) {
                exponentiate(reinterpret_cast<Fragments<1, kTiles>&>(s.c[0][first]), factor);
            } else {
#pragma unroll
                for (int e = 0; e < 4 * kTiles; ++e) s.c[0][first + e / 4][e % 4] = 0.0f;
            }
        }
    }

    // True once all of this lane's rows have a maximum.
    __device__ __forceinline__ bool anchored() const {
        bool all = true;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) all = all && m[n][half] > kLeastMaximum;
        return all;
    }

    // For a block that is not searched for its maximum: P = 2^(factor S - m) has the m of an earlier block, and fp32
    // holds it. Sets `grows` where a lane's sum is large against what the lane has summed up before: one P may then be
    // most of its row, and as it is no power of two, its rounding would show. Scores with a standard deviation of 1
    // never get there. That matters, because a warp that lowers a block makes the consumers fall into step, which costs
    // 2 to 10% of their speed. A sum up to `allowed` never grows; one over kMostGrowth always does, because of fp16's
    // range, and because l is infinite where the sum is.
    __device__ __forceinline__ void find_growth(const RowSums& sum, float allowed) {
        constexpr float kOfBefore = 4.0f, kMostGrowth = 256.0f;
        bool lane_grows = false;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // l has the sum in it
                const float before = l[n][half] * (kOfBefore / (1.0f + kOfBefore));
                const float most = fminf(fmaxf(before, allowed), kMostGrowth);
                lane_grows = lane_grows || !(sum.of[n][half] <= most);
            }
        grows = __any_sync(~0u, lane_grows);
    }
    // Then each row's greatest P becomes at most 1, and m moves up by its logarithm; l has been multiplied by alpha,
    // and O must be. Returns false if m moved too far: then the tile needs a careful pass, with find_maximum.
    template <int NT>
    __device__ __forceinline__ bool lower(Fragments<MT, NT>& s, const RowSums& sum) {
        // Beyond the lesser bound, roundoff of S - m would show in LSE, unless the new m, and with it LSE, is about as
        // large as the jump. Below the greater one alpha is a normal number.
        constexpr float kMostJump = 0x1p24f, kMostJumpUpwards = 0x1p120f, kUpwards = -12.0f;
        bool held = true;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float most = m[n][half] >= kUpwards ? kMostJumpUpwards : kMostJump;
                held = held && sum.of[n][half] <= most;  // false for a NaN
                float highest = kHighest;
                each_of_row(s, n, half, [&](float& p) { highest = fmaxf(highest, p); });
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
                move(n, half, m[n][half] + (ptx::log2(highest) - kRise), 1.0f);
                each_of_row(s, n, half, [&](float& p) { p *= alpha[n][half]; });
            }
        return held;
    }

    // Adds up the four lanes of a row.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                l[n][half] += __shfl_xor_sync(~0u, l[n][half], 1);
                l[n][half] += __shfl_xor_sync(~0u, l[n][half], 2);
            }
    }

    // `unit` takes m to natural units.
    __device__ __forceinline__ float lse(int n, int half, double unit) const {
        if (l[n][half] == 0.0f) return -infinity();
        return static_cast<float>(lse_of(m[n][half], l[n][half], unit));
    }

protected:
    static constexpr float kMostLag = 3.0f;  // in log2 units

    // alpha is made of the difference of the old and the new m, both as rounded, so that m's rounding does not count.
    __device__ __forceinline__ void move(int n, int half, float next, float factor) {
        alpha[n][half] = ptx::exp2(kOwnUnits ? (m[n][half] - next) * factor : m[n][half] - next);
        m[n].set(half, next);
        l[n][half] *= alpha[n][half];
    }

    template <int NT, class Body>
    __device__ static __forceinline__ void each_of_row(Fragments<MT, NT>& s, int n, int half, Body body) {
#pragma unroll
        for (int column = 0; column < NT; ++column)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; ++e) body(s.c[n][column][e]);
    }
};

}  // namespace flashtile
