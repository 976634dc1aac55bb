// softmax.h: the online softmax of FlashAttention-2 (Algorithm 1, lines 9 and 10) on one warp's accumulators. Each lane
// keeps m and l of the rows that it holds; l is its own columns' share until the end.
#pragma once

#include "cuda/kernels/parts/common/logarithm.h"
#include "cuda/kernels/parts/common/row_pair.h"
#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

// m in log2 units, that is of factor S, or, with kOwnUnits, in the scores' own: where options have worked on scores, a
// row that a bias moves as a whole by 1e10 would lose all its digits in the rounding of factor m, while S - m is exact;
// and in fp32 the greatest P of a row that a key alone is seen by would not be exactly 1.
template <int MT, bool kOwnUnits>
struct Softmax {
    RowPair m[MT];
    float l[MT][2];
    float alpha[MT][2];  // where `grows`
    bool grows;          // any row of the warp has a new maximum

    // This lane's share of a block's rowsum(P).
    struct RowSums {
        float of[MT][2];
    };

    __device__ __forceinline__ void start(float factor) {
        // in fp32's range, however small the factor is: -inf - -inf must not arise
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
    // The same where columns from 8 kGroup `seen` on are hidden.
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

    // True once this lane's rows have a maximum to refer to.
    __device__ __forceinline__ bool anchored() const {
        bool all = true;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) all = all && m[n][half] > kLeastMaximum;
        return all;
    }

    // Where a block is not searched for its maximum, P = 2^(factor S - m) with the m that an earlier block left, which
    // fp32's range holds. `grows` where a lane's sum outweighs what the lane has seen so far, so that one P may be most
    // of its row: as it is no power of two, rounding it would show. Scores with a standard deviation of 1 never come
    // there, which matters: a warp that lowers a block makes the consumers fall into step, at 2 to 10% of their speed.
    // A sum of `allowed` may come in any case, one over kMostGrowth in none: fp16's range, and l is infinite where the
    // sum is.
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
    // Then each row's greatest P becomes at most 1 and m moves up by its logarithm; alpha is what l has been multiplied
    // by and O must be. False if it jumped too far: the tile is to be done again with find_maximum.
    template <int NT>
    __device__ __forceinline__ bool lower(Fragments<MT, NT>& s, const RowSums& sum) {
        // Beyond the lesser, roundoff of S - m would show in LSE, unless the new m, and so LSE, is about as large as
        // the jump; the greater leaves alpha a normal number.
        constexpr float kMostJump = 0x1p24f, kMostJumpUpwards = 0x1p120f, kUpwards = -12.0f;
        bool sound = true;
#pragma unroll
        for (int n = 0; n < MT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float most = m[n][half] >= kUpwards ? kMostJumpUpwards : kMostJump;
                sound = sound && sum.of[n][half] <= most;  // a NaN is not
                float highest = 1.0f;
                each_of_row(s, n, half, [&](float& p) { highest = fmaxf(highest, p); });
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
                move(n, half, m[n][half] + ptx::log2(highest), 1.0f);
                each_of_row(s, n, half, [&](float& p) { p *= alpha[n][half]; });
            }
        return sound;
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

    // In fp64: LSE is exact to a few units of the last place, which m * unit + log l in fp32 would not be. `unit`: what
    // m is multiplied by to be in natural units.
    __device__ __forceinline__ float lse(int n, int half, double unit) const {
        if (l[n][half] == 0.0f) return -infinity();
        return static_cast<float>(fma(static_cast<double>(m[n][half]), unit, logarithm(l[n][half])));
    }

private:
    static constexpr float kMostLag = 3.0f;  // in log2 units

    // By the difference of what m was and is, as they are rounded, so that no error of m's is left.
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
