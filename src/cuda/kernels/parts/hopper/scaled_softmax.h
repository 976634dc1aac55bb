// scaled_softmax.h: the softmax of Hopper's forward on e4m3. Scores are products of e4m3 times the scales of q and k,
// and P becomes e4m3 in its turn: its greatest value is 2^kRise instead of 1, so that more of its range is used. Where
// blocks of V have scales of their own, O is kept in units of one of them, and the P of another block's keys is
// multiplied by the quotient, in the exponent: no instruction is spent on it (sm_90).
#pragma once

#include "cuda/kernels/parts/common/scales.h"
#include "cuda/kernels/parts/common/softmax.h"
#include "cuda/kernels/ptx/shared_memory.h"

namespace flashtile {

// What takes scores to log2 units; here, one factor for all. ScoreUnits<config, true> is that of e4m3.
template <KernelConfig config, bool kScaled = config.element == Element::e4m3 || config.converts_kv>
struct ScoreUnits {
    using RowSoftmax = Softmax<1, own_units<config>()>;
    static constexpr int kSearched = 1;  // blocks that are searched for the maximum at least

    __device__ __forceinline__ void start(const KernelParams&, const Sequence&, int) {}
    __device__ __forceinline__ void find(unsigned) {}
    __device__ __forceinline__ float at_hand(const KernelParams& p) const { return log2_factor<config>(p); }
    __device__ __forceinline__ void keep_output_units(RowSoftmax&) {}
    __device__ __forceinline__ float of_output(float factor) const { return factor; }
};

// P of e4m3 reaches 448. A block's P may sum up to 2^8 in a lane before it is lowered, and a block of V may have
// kMostQuotient of the scale that O has (block_scales.h).
constexpr int rise_of(const KernelConfig& c) {
    return c.element != Element::e4m3 ? 0 : c.lazy_rescale ? 4 : 8;
}

template <KernelConfig config>
struct ScaledSoftmax;

template <KernelConfig config>
struct ScoreUnits<config, true> {
    using RowSoftmax = ScaledSoftmax<config>;
    static constexpr int kSearched = 2;  // of the first one a row may see a few keys only
    // Keys of a block that share scales: all, or 64.
    static constexpr int kGroups = config.scale_blocks ? config.Bc / kScaleGroup : 1;
    static_assert(!config.scale_blocks || config.Bc % kScaleGroup == 0, "");

    float factor[kGroups];  // from a product of q and k to log2 units
    float raise[kGroups];   // log2 of V's scale in units of O's
    float weight[kGroups];  // 2^-raise
    float queries;          // the factor but for k's scale
    float values = 0.0f;    // O's scale
    float quotient = 1.0f;  // of O's scale before the block at hand, and with it

    // For 64 queries from row i of a sequence on.
    __device__ __forceinline__ void start(const KernelParams& p, const Sequence& seq, int i) {
        queries = p.scale_log2 * query_scales<config>(p, seq, seq.h).at(p, i);
        if constexpr (config.scale_blocks) return;
        factor[0] = queries * key_scales<config>(p, p.k_scale, seq).of_all();
        values = key_scales<config>(p, p.v_scale, seq).of_all();
    }
    // For the block of keys at hand, of which BlockScales have told at `address`.
    __device__ __forceinline__ void find(unsigned address) {
        if constexpr (config.scale_blocks) {
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                const uint4 told = ptx::load_shared(address + g * 16);
                factor[g] = queries * __uint_as_float(told.x);
                raise[g] = __uint_as_float(told.y);
                weight[g] = __uint_as_float(told.z);
            }
            const float2 of_output = ptx::load_shared_pair(address + kGroups * 16);
            values = of_output.x;
            quotient = of_output.y;
        }
    }
    __device__ __forceinline__ const ScoreUnits& at_hand(const KernelParams&) const {
        return *this;
    }
    // O, of the blocks before, takes the units of the block at hand when it is rescaled.
    __device__ __forceinline__ void keep_output_units(RowSoftmax& softmax) const {
        if constexpr (!config.scale_blocks) return;
        if (quotient == 1.0f) return;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            softmax.alpha[0][half] = softmax.grows ? softmax.alpha[0][half] * quotient : quotient;
        softmax.grows = true;
    }
    __device__ __forceinline__ float of_output(float factor) const {
        return factor * values;
    }
};

template <KernelConfig config>
struct ScaledSoftmax : Softmax<1, false, rise_of(config)> {
    using Base = Softmax<1, false, rise_of(config)>;
    using Base::m, Base::l, Base::grows, Base::move;
    using typename Base::RowSums;
    using Units = ScoreUnits<config>;
    static constexpr int kTilesOfGroup = kScaleGroup / 8;

    // The same as Base's, which explains them, with the units of each group of keys. The maximum is that of P as it is
    // rounded, and so a row that sees one key alone has exactly its value. It does not lag, since of the few bits of
    // e4m3's mantissa a row's greatest P would need the most.
    template <bool, int kGroup = 32, int NT>
    __device__ __forceinline__ void find_maximum(const Fragments<1, NT>& s, const Units& units, int seen = 1) {
        constexpr int kStep = config.scale_blocks ? kTilesOfGroup : kGroup;
        float highest[2] = {-infinity(), -infinity()};
#pragma unroll
        for (int first = 0; first < NT; first += kStep) {
            if (first / kGroup >= seen) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float of_group = -infinity();
#pragma unroll
                for (int column = first; column < NT && column < first + kStep; ++column)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) of_group = fmaxf(of_group, s.c[0][column][e]);
                const float factor = factor_at(units, first);
                const float raised =
                    config.scale_blocks ? fmaf(of_group, factor, units.raise[group_at(first)]) : of_group * factor;
                highest[half] = fmaxf(highest[half], raised);
            }
        }
        bool row_grows = false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float x = highest[half];
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
            highest[half] = x - rise_of(config);
            row_grows = row_grows || highest[half] > m[0][half];
        }
        grows = __any_sync(~0u, row_grows);
        if (!grows) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) move(0, half, fmaxf(m[0][half], highest[half]), 1.0f);
    }

    template <int NT>
    __device__ __forceinline__ RowSums exponentiate(Fragments<1, NT>& s, const Units& units) {
        RowSums sum{};
        constexpr int kStep = config.scale_blocks ? kTilesOfGroup : NT;
#pragma unroll
        for (int first = 0; first < NT; first += kStep) exponentiate_group<kStep>(s, first, units, sum);
        return sum;
    }
    template <int kGroup, int NT>
    __device__ __forceinline__ void exponentiate_seen(Fragments<1, NT>& s, const Units& units, int seen) {
        constexpr int kTiles = kGroup < NT ? kGroup : NT;
        static_assert(!config.scale_blocks || kTiles == kTilesOfGroup, "");
        RowSums sum{};
#pragma unroll
        for (int first = 0; first < NT; first += kTiles) {
            if (first / kGroup < seen) {
                exponentiate_group<kTiles>(s, first, units, sum);
            } else {
#pragma unroll
                for (int e = 0; e < 4 * kTiles; ++e) s.c[0][first + e / 4][e % 4] = 0.0f;
            }
        }
    }

private:
    __device__ static __forceinline__ float factor_at(const Units& units, int tile) {
        return units.factor[group_at(tile)];
    }
    __device__ static constexpr int group_at(int tile) {
        return config.scale_blocks ? tile / kTilesOfGroup : 0;
    }
    // Of the tiles [first, first + kTiles), which share their scales.
    template <int kTiles, int NT>
    __device__ __forceinline__ void exponentiate_group(Fragments<1, NT>& s, int first, const Units& units,
                                                       RowSums& sum) {
        const float factor = factor_at(units, first);
        const int group = group_at(first);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float added = config.scale_blocks ? units.raise[group] - m[0][half] : -m[0][half];
            float of_group = 0.0f;
#pragma unroll
            for (int column = first; column < first + kTiles; ++column)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    float& p = s.c[0][column][e];
                    p = ptx::exp2(fmaf(p, factor, added));
                    of_group += p;
                }
            sum.of[0][half] += of_group;
            l[0][half] += config.scale_blocks ? of_group * units.weight[group] : of_group;
        }
    }
};

}  // namespace flashtile
