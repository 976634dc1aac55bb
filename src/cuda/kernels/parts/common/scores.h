// scores.h: from q.k to the score that softmax sees, on one warp's accumulators: scale, softcap, ALiBi, bias, the score
// function, then boolean masks, the mask function, the band and the sequence's end (docs/semantics.md).
#pragma once

#include "cuda/kernels/parts/common/bias_and_mask.h"
#include "cuda/kernels/parts/common/functions.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/parts/common/tree_mask.h"

namespace flashtile {

constexpr float kLog2e = 1.4426950408889634f;

// Softmax keeps m in the scores' own units (softmax.h says why).
template <KernelConfig config>
constexpr bool own_units() {
    return config.scale_first || config.element == Element::fp32;
}
// log2_factor takes scores, as ScoreModifier leaves them, to log2 units; natural_unit takes m to natural units.
template <KernelConfig config>
__device__ __forceinline__ float log2_factor(const KernelParams& p) {
    return config.scale_first ? kLog2e : p.scale_log2;
}
template <KernelConfig config>
__device__ __forceinline__ double natural_unit(const KernelParams& p) {
    if constexpr (config.scale_first) return 1.0;
    return own_units<config>() ? p.natural_unit * static_cast<double>(p.scale_log2) : p.natural_unit;
}

// Where running maxima start: just above kHiddenScore in log2 units. A score at or below kHiddenScore then never
// becomes a maximum, 2^(s - m) is exactly 0 for it, a row of nothing else ends with l = 0, and no -inf - -inf can
// arise.
constexpr float kLeastMaximum = kHiddenScore * kLog2e * 0.999999f;

__device__ __forceinline__ int clamp_to_int(Index x) {
    constexpr Index kFar = 1 << 30;
    return static_cast<int>(x < -kFar ? -kFar : (x > kFar ? kFar : x));
}

// tanh(x) / x for |x| <= kNearZero is 1 + x^2 kTanh[0] + x^4 kTanh[1] + ..., to a relative error of 2^-23.5.
constexpr float kNearZero = 0.6f;
constexpr float kTanh[] = {-0.33332598f, 0.13313117f, -0.05221181f, 0.01561263f};

// Of the score, by scale * q.k or by what the bias is added to. function: there is none, and in its place is the score
// that the score function is given.
enum class DerivativeBy { none, product, bias, function };

constexpr bool differentiates(DerivativeBy by) {
    return by == DerivativeBy::product || by == DerivativeBy::bias;
}

// What the options except the band do to a head's scores.
template <KernelConfig config>
struct ScoreModifier {
    float slope = 0.0f;

    __device__ static __forceinline__ ScoreModifier make(const KernelParams& p, const Sequence& s) {
        ScoreModifier modifier;
        if constexpr (config.alibi)
            modifier.slope =
                static_cast<const float*>(p.slopes.data)[s.b * p.slopes.stride_batch + s.h * p.slopes.stride_head];
        return modifier;
    }

    // Hopper's kernels know of blocks that the mask function shows whole, and hide by themselves in the others. They
    // also find by themselves what a score function adds.
    static constexpr bool kOfHopper = config.kernel == Kernel::forward_sm90 || config.kernel == Kernel::backward_sm90;
    static constexpr bool kAddsByDiagonal =
        kOfHopper && !config.softcap && !config.alibi && !config.has_bias_or_mask() && adds_by_diagonal<config>();

    // Whether scores may hide keys from some rows, beyond what the band hides.
    static constexpr bool kMayHide = config.has_bias_or_mask() || config.tree_mask || config.has_functions();

    // s = q.k on entry, and then in natural units where config.scale_first. `derivative` receives what kBy says, where
    // that is no derivative of 1.
    template <DerivativeBy kBy, int MT, int NT>
    __device__ __forceinline__ void apply(Fragments<MT, NT>& s, const KernelParams& p, const Sequence& seq,
                                          const Place& place, BiasAndMask<config, MT, NT>& bias_and_mask,
                                          Fragments<MT, NT>& derivative) const {
        constexpr bool kOfSoftcap = config.softcap && kBy == DerivativeBy::product;
        if constexpr (config.softcap)
            soften<kOfSoftcap>(s, p.scale, p.softcap, derivative);
        else if constexpr (kAddsByDiagonal)
            bias_and_mask.by_diagonal.add(s, p.scale);
        else if constexpr (config.scale_first)
            each_score<MT, NT>([&](int m, int n, int e) { s.c[m][n][e] *= p.scale; });
        if (config.alibi && config.tree_mask && seq.positions != nullptr) {
            each_score<MT, NT>([&](int m, int n, int e) {
                const Index i = seq.query_position(query_of<config>(place.i0 + Place::row(m, e)));
                const int d = clamp_to_int(i - seq.key_position(place.j0 + Place::column(n, e)));
                s.c[m][n][e] -= slope * static_cast<float>(d < 0 ? -d : d);
            });
        } else if constexpr (config.alibi) {
            const int distance = clamp_to_int(place.i0 + seq.band.offset - place.j0);
            each_score<MT, NT>([&](int m, int n, int e) {
                const int d = distance + Place::row(m, e) - Place::column(n, e);
                s.c[m][n][e] -= slope * static_cast<float>(d < 0 ? -d : d);
            });
        }
        if constexpr (config.has_bias_or_mask()) bias_and_mask.apply(s);
        if constexpr (kBy == DerivativeBy::function)
            each_score<MT, NT>([&](int m, int n, int e) { derivative.c[m][n][e] = s.c[m][n][e]; });
        if constexpr (config.score_function && !kAddsByDiagonal)
            apply_score_function<config, differentiates(kBy), kOfSoftcap>(s, p, seq, place, derivative);
        if constexpr (config.mask_function && !kOfHopper) bias_and_mask.shown.hide_others(s);
        if constexpr (config.has_bias_or_mask() || config.has_functions()) hide_rows_past_end(s, seq, place);
        if constexpr (config.tree_mask) apply_tree_mask<config>(s, p, seq, place);
    }

    // Whether apply writes a derivative.
    template <DerivativeBy kBy>
    static constexpr bool kHasDerivative = (config.score_function && differentiates(kBy)) ||
                                           (config.softcap && kBy == DerivativeBy::product);

    // kHiddenScore in the units that apply leaves.
    __device__ static __forceinline__ float hidden_score(const KernelParams& p) {
        return config.scale_first ? kHiddenScore : kHiddenScore / p.scale;
    }
    // softcap, in the same units: no score is beyond.
    __device__ static __forceinline__ float cap(const KernelParams& p) {
        return config.scale_first ? p.softcap : p.softcap / p.scale;
    }

    // What lies there may be anything, and its P must be 0. Columns past the end are left to the band.
    template <int MT, int NT>
    __device__ static __forceinline__ void hide_rows_past_end(Fragments<MT, NT>& s, const Sequence& seq,
                                                              const Place& place) {
        if (place.i0 + MT * 16 > seq.seqlen_q)
            each_score<MT, NT>([&](int m, int n, int e) {
                if (place.i0 + Place::row(m, e) >= seq.seqlen_q) s.c[m][n][e] = -infinity();
            });
    }

    // s = c tanh(scale s / c), divided by scale unless config.scale_first. Most scores are well below c. Where all
    // scores of a warp are, it takes a polynomial instead of tanhf, in whose branches it would mostly wait; but not
    // where rows must not share a decision.
    template <bool kDerivative, int MT, int NT>
    __device__ static __forceinline__ void soften(Fragments<MT, NT>& s, float scale, float c,
                                                  Fragments<MT, NT>& derivative) {
        constexpr int kTerms = sizeof(kTanh) / sizeof(float);
        constexpr float kMost = 1e4f;                          // of x / s, whose eighth power is a factor
        const float unit = config.scale_first ? scale : 1.0f;  // of q.k in the units of the result
        constexpr float kGreatest = 3.4028235e38f;             // not infinity, which times a score of 0 is NaN
        const float limit = config.scale_first ? c : c / scale;
        const float per_score = fminf(fmaxf(scale / c, -kGreatest), kGreatest);
        float farthest = 0.0f;
        each_score<MT, NT>([&](int m, int n, int e) { farthest = fmaxf(farthest, fabsf(s.c[m][n][e])); });
        if (config.lazy_rescale &&
            __all_sync(~0u, farthest * fabsf(per_score) <= kNearZero && fabsf(per_score) < kMost)) {
            float factors[kTerms], power = unit;
#pragma unroll
            for (int k = 0; k < kTerms; ++k) factors[k] = kTanh[k] * (power *= per_score * per_score);
            each_score<MT, NT>([&](int m, int n, int e) {
                float& x = s.c[m][n][e];
                const float square = x * x;
                float y = factors[kTerms - 1];
#pragma unroll
                for (int k = kTerms - 2; k >= 0; --k) y = fmaf(y, square, factors[k]);
                x *= fmaf(y, square, unit);
            });
        } else {
            each_score<MT, NT>([&](int m, int n, int e) { s.c[m][n][e] = limit * tanhf(s.c[m][n][e] * per_score); });
        }
        if constexpr (kDerivative) {
            const float inverse = 1.0f / limit;
            each_score<MT, NT>([&](int m, int n, int e) {
                const float t = s.c[m][n][e] * inverse;
                derivative.c[m][n][e] = 1.0f - t * t;
            });
        }
    }
};

// Hides of each row what its query does not see.
template <KernelConfig config, int MT, int NT>
__device__ __forceinline__ void hide_row_by_row(Fragments<MT, NT>& s, const Sequence& seq, const Place& place) {
    const int j = place.j0 + Place::column(0, 0);
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int i = query_of<config>(place.i0 + Place::row(m, 2 * half));
            const int low = seq.first_key<config>(i) - j, high = seq.end_key<config>(i + 1) - j;
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    const int column = n * 8 + e % 2;
                    if (column >= high || column < low) s.c[m][n][e] = -infinity();
                }
        }
}

// The same where queries and the keys of a tree are at positions of their own.
template <KernelConfig config, int MT, int NT>
__device__ __forceinline__ void hide_by_positions(Fragments<MT, NT>& s, const Sequence& seq, const Place& place) {
    const auto seen = seq.mask<config>();
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int i = query_of<config>(place.i0 + Place::row(m, 2 * half));
            const Index row = seq.query_position(i) - seq.band.offset;  // the query that would be there without them
            const Index first = seen.first_key(row), end = seen.end_key(row, Band::kOpen);
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    const int j = place.j0 + Place::column(n, e);
                    const Index at = seq.key_position(j);
                    if (j >= seq.seqlen_k || j < seq.hidden_k || at < first || at >= end) s.c[m][n][e] = -infinity();
                }
        }
}

// Mixed blocks: hides what lies outside the band or past the last key. Groups of 8 kGroup columns outside [first_group,
// end_group) are left alone.
template <KernelConfig config, int kGroup = 32, int MT, int NT>
__device__ __forceinline__ void apply_band(Fragments<MT, NT>& s, const Sequence& seq, const Place& place,
                                           int first_group = 0, int end_group = 1) {
    if (config.band && config.tree_mask && seq.positions != nullptr) {
        hide_by_positions<config>(s, seq, place);
        return;
    }
    if constexpr (config.chunk || config.first_k) {
        static_assert(NT <= kGroup, "");
        hide_row_by_row<config>(s, seq, place);
        return;
    }
    // Bounds are relative to this lane's first row and column. Columns are then constants to compare with, and one
    // bound serves all rows, which takes few registers.
    const int own_row = place.i0 + Place::row(0, 0);
    const int i = query_of<config>(own_row), j = place.j0 + Place::column(0, 0);
    const int end = clamp_to_int(Index{seq.seqlen_k} - j);
    // with prefixes there is no window, and the first keys are hidden from all rows
    const int first = config.prefixes ? seq.hidden_k - j : config.window ? clamp_to_int(seq.band.start(i) - j) : 0;
    const int last = config.band ? clamp_to_int(seq.band.stop(i) - j) : 0;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int further = query_of<config>(own_row + m * 16 + half * 8) - i;
            const int low = config.prefixes ? first : first + further;
            const int high = config.band ? smaller(last + further, end) : end;
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                if (NT > kGroup && (n / kGroup < first_group || n / kGroup >= end_group)) continue;
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    const int column = n * 8 + e % 2;
                    if (column >= high || ((config.window || config.prefixes) && column < low))
                        s.c[m][n][e] = -infinity();
                }
            }
        }
}

// Which queries see this lane's first key of a warp's 16 by the band: [first, end), and those of its second key are 8
// further. Both keys have what the sequence has of these, and so they may start at -8.
struct SeenQueries {
    int first, end;

    template <KernelConfig config>
    __device__ static __forceinline__ SeenQueries make(const Sequence& seq, int first_key) {
        const int second = first_key + Place::row(0, 2);
        const Index all = Index{seq.seqlen_q} + 8;
        const auto band = seq.mask<config>();
        return {config.band ? static_cast<int>(smaller(band.first_query(second), all)) - 8 : -8,
                config.window ? static_cast<int>(band.end_query(second, all)) - 8 : seq.seqlen_q};
    }
};

// The same, transposed: rows are keys and columns are queries, place.i0 is the first key and place.j0 the first query.
template <KernelConfig config, int NT>
__device__ __forceinline__ void apply_band_transposed(Fragments<1, NT>& s, const Sequence& seq, const SeenQueries& seen,
                                                      const Place& place) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int j = place.i0 + Place::row(0, 2 * half), origin = place.j0 + Place::column(0, 0);
        const int low = config.band ? seen.first + half * 8 - origin : 0;
        const int end = config.window ? smaller(seen.end + half * 8, seq.seqlen_q) : seq.seqlen_q;
        const int high = j < seq.seqlen_k ? end - origin : 0;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; ++e) {
                const int column = n * 8 + e % 2;
                if (column >= high || (config.band && column < low)) s.c[0][n][e] = -infinity();
            }
    }
}

// Turns a pair's two bits into the mask for a register of two 16-bit values.
__device__ __forceinline__ unsigned pair_mask(unsigned bits) {
    return ((bits & 1) != 0 ? 0xFFFFu : 0u) | ((bits & 2) != 0 ? 0xFFFF0000u : 0u);
}

// Which of this lane's columns any row of the warp sees, and so which keys' rows of V (or K) count.
template <int MT, int NT>
struct SeenColumns {
    static_assert(2 * NT <= 32, "");
    unsigned bits;  // two for each tile of 8 columns

    // `hidden`: kHiddenScore in the units of s.
    __device__ __forceinline__ void find(const Fragments<MT, NT>& s, float hidden) {
        bits = 0;
        each_score<MT, NT>([&](int m, int n, int e) {
            if (!(s.c[m][n][e] <= hidden)) bits |= 1u << (2 * n + e % 2);  // a NaN is seen
        });
        bits |= __shfl_xor_sync(~0u, bits, 4);
        bits |= __shfl_xor_sync(~0u, bits, 8);
        bits |= __shfl_xor_sync(~0u, bits, 16);
    }
    // Whether that is all columns; the answer is the same in all lanes of the warp.
    __device__ __forceinline__ bool all() const { return __all_sync(~0u, bits == ~0u >> (32 - 2 * NT)); }
    __device__ __forceinline__ unsigned pair(int n) const { return bits >> 2 * n & 3; }

    // What products ask for, as KeepAll says: masks for pairs of keys, and bit k for column 8 n + k.
    __device__ __forceinline__ uint2 masks(int k) const {
        return make_uint2(pair_mask(pair(2 * k)), pair_mask(pair(2 * k + 1)));
    }
    __device__ __forceinline__ unsigned eight(int n) const {
        unsigned seen = pair(n) << (lane_id() % 4 * 2);
        seen |= __shfl_xor_sync(~0u, seen, 1);
        return seen | __shfl_xor_sync(~0u, seen, 2);
    }
};

}  // namespace flashtile
