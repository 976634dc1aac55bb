// functions.h: the user's score and mask functions (docs/functions.md) on one warp's scores. What they compute is
// written for each call by src/cuda/jit/function_source.cpp. Of an expression, what depends on the query alone is
// computed once a row, what depends on the key alone once a column, what depends on i - j alone once for each i - j
// that a lane has, and the rest for each score.
#pragma once

#include "cuda/kernels/parts/common/function_intervals.h"
#include "cuda/kernels/parts/common/function_operations.h"
#include "cuda/kernels/parts/common/listed_blocks.h"
#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

// What functions are given beside the score, the query and the key.
struct FunctionArguments {
    Index b, h, seqlen_q, seqlen_k;
    const DeviceFunctionTensor* tensors;
};

// b and h are those of the whole problem where this one is a shard of it.
__device__ __forceinline__ FunctionArguments arguments_of(const KernelParams& p, const Sequence& seq) {
    return {p.origin_b + seq.b, p.origin_h + seq.h, seq.seqlen_q, seq.seqlen_k, p.function_tensors};
}

// A query or a key, by its place in the whole problem. A near one is there in fp32, too, so that no instruction has to
// convert it.
template <bool kNear>
struct PositionOf {
    Index at;

    __device__ __forceinline__ explicit PositionOf(Index place) : at(place) {}
    __device__ __forceinline__ PositionOf further(int n) const { return PositionOf(at + n); }
};
template <>
struct PositionOf<true> {
    int at;
    float real;

    __device__ __forceinline__ explicit PositionOf(Index place)
        : at(static_cast<int>(place)), real(static_cast<float>(at)) {}
    __device__ __forceinline__ PositionOf further(int n) const {
        PositionOf position = *this;
        position.at += n;
        position.real += static_cast<float>(n);
        return position;
    }
};
template <KernelConfig config>
using Position = PositionOf<config.near_positions>;

// Each is made of FunctionArguments, and has
//   Row row_of(Position i), Column column_of(Position j), Diagonal diagonal_of(const Row&, const Column&)
//   float value(const Row&, const Column&, const Diagonal&, float s, float& derivative), of a score function
//   bool value(const Row&, const Column&, const Diagonal&), of a mask function
// and, if a score function is s and kAddsByDiagonal says that what it adds depends on i - j alone,
//   float added(const Diagonal&)
template <KernelConfig config>
struct ScoreFunction;
template <KernelConfig config>
struct MaskFunction;
// What the mask function may give for queries and keys in these intervals. All lanes of a warp call it together, and
// kSharers beside each other with the same intervals.
template <KernelConfig config>
__device__ __forceinline__ intervals::Bools mask_interval(const FunctionArguments& given, const intervals::Ints& i,
                                                          const intervals::Ints& j);
// Of a score function's loads of floats, by which it has a derivative: there are kLoads, and
//   each(const Row&, const Column&, const Diagonal&, float s, add) calls add(number of the load, tensor, derivative,
//   indices...)
template <KernelConfig config>
struct ScoreLoads;

// Calls body(m, n, e, function, row, column, diagonal) for every score of this lane. The rows of a tile are queries of
// one head. Rows and columns lie 8 apart: of the diagonals of eight columns all but the first were those of the eight
// before.
template <template <KernelConfig> class Function, KernelConfig config, int MT, int NT, class Body>
__device__ __forceinline__ void each_function_value(const KernelParams& p, const Sequence& seq, const Place& place,
                                                    Body body) {
    static_assert(config.group_rows == 1, "");
    const Function<config> function(arguments_of(p, seq));
    const Position<config> i0(origin_i_of(p, seq.b) + place.i0 + Place::row(0, 0));
    const Position<config> j0(origin_j_of(p, seq.b) + place.j0 + Place::column(0, 0));
    typename Function<config>::Row rows[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) rows[m][half] = function.row_of(i0.further(m * 16 + half * 8));
    typename Function<config>::Diagonal diagonals[2][2 * MT];
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int second = 0; second < 2; ++second) {
            const typename Function<config>::Column column = function.column_of(j0.further(n * 8 + second));
            auto& now = diagonals[second];
#pragma unroll
            for (int eight = 2 * MT - 1; eight > 0; --eight)
                now[eight] = n == 0 ? function.diagonal_of(rows[eight / 2][eight % 2], column) : now[eight - 1];
            now[0] = function.diagonal_of(rows[0][0], column);
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    body(m, n, 2 * half + second, function, rows[m][half], column, now[2 * m + half]);
        }
}

// s becomes the score function of s. A key that a bias or a mask has hidden stays hidden. Where kDerivative,
// `derivative` is multiplied by the function's, or set to it where there is none before.
template <KernelConfig config, bool kDerivative, bool kDerivativeBefore, int MT, int NT>
__device__ __forceinline__ void apply_score_function(Fragments<MT, NT>& s, const KernelParams& p, const Sequence& seq,
                                                     const Place& place, Fragments<MT, NT>& derivative) {
    each_function_value<ScoreFunction, config, MT, NT>(
        p, seq, place,
        [&](int m, int n, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
            float& x = s.c[m][n][e];
            float by_s;
            const float value = function.value(row, column, diagonal, x, by_s);
            x = x <= kHiddenScore ? -infinity() : value;
            if constexpr (kDerivative) {
                float& d = derivative.c[m][n][e];
                d = kDerivativeBefore ? d * by_s : by_s;
            }
        });
}

// Of a score function that adds to s what depends on i - j alone, a bias by the distance for example: what it adds to
// this lane's scores of 16 rows and NT times 8 columns. It is found before the product that computes the scores, so
// that its loads are done when these are there. (kTransposed: rows are keys, columns queries.)
template <KernelConfig config, int NT, bool kTransposed>
struct AddedByDiagonal {
    // place.i0 is the first row, place.j0 the first column.
    __device__ __forceinline__ void find(const KernelParams& p, const Sequence& seq, const Place& place) {
        const ScoreFunction<config> function(arguments_of(p, seq));
        const int row = Place::row(0, 0), column = Place::column(0, 0);
        const Position<config> i0(origin_i_of(p, seq.b) + (kTransposed ? place.j0 + column : place.i0 + row));
        const Position<config> j0(origin_j_of(p, seq.b) + (kTransposed ? place.i0 + row : place.j0 + column));
        const auto at = [&](const Position<config>& i, const Position<config>& j) {
            return function.added(function.diagonal_of(function.row_of(i), function.column_of(j)));
        };
        bool small = true;
#pragma unroll
        for (int n = 0; n <= NT; ++n)
#pragma unroll
            for (int second = 0; second < 2; ++second) {
                // that of the second eight rows and the first columns, and then of the first rows and columns n - 1
                const int rows = n == 0 ? 8 : 0, columns = (n == 0 ? 0 : n * 8 - 8) + second;
                const float x =
                    kTransposed ? at(i0.further(columns), j0.further(rows)) : at(i0.further(rows), j0.further(columns));
                added_[n][second] = x;
                small = small && x < kSmall;
            }
        small_ = __all_sync(~0u, small);
    }
    // s, the product of q and k, becomes the score in natural units. A key whose score is hidden before stays so.
    __device__ __forceinline__ void add(Fragments<1, NT>& s, float scale) const {
        if (small_) {  // it moves no score from kHiddenScore to where it would show
            each_score<1, NT>([&](int, int n, int e) { s.c[0][n][e] = fmaf(s.c[0][n][e], scale, of(n, e)); });
        } else {
            each_score<1, NT>([&](int, int n, int e) {
                const float x = s.c[0][n][e] * scale;
                s.c[0][n][e] = x <= kHiddenScore ? -infinity() : x + of(n, e);
            });
        }
    }

private:
    static constexpr float kSmall = 1e20f;

    __device__ __forceinline__ float of(int n, int e) const {
        return added_[e < 2 ? n + 1 : n][e % 2];
    }

    float added_[NT + 1][2];
    bool small_;  // of all lanes of the warp
};
template <KernelConfig config>
constexpr bool adds_by_diagonal() {
    if constexpr (config.score_function)
        return ScoreFunction<config>::kAddsByDiagonal;
    else
        return false;
}

// Calls hide(m, n, e) for every score of this lane that lists of blocks or the mask function hide.
template <KernelConfig config, int MT, int NT, class Hide>
__device__ __forceinline__ void each_unshown(const KernelParams& p, const Sequence& seq, const Place& place,
                                             Hide hide) {
    if constexpr (config.block_lists) {
        static_assert(MT * NT <= 32, "");
        unsigned partial = 0;  // fragments in which the mask function counts
        each_listed_fragment<MT, NT, false>(p, seq, place, [&](int m, int n, BlockKind kind) {
            if (kind == BlockKind::hidden)
#pragma unroll
                for (int e = 0; e < 4; ++e) hide(m, n, e);
            if (kind == BlockKind::partial) partial |= 1u << (m * NT + n);
        });
        if constexpr (!config.lists_alone)
            if (partial != 0)
                each_function_value<MaskFunction, config, MT, NT>(
                    p, seq, place,
                    [&](int m, int n, int e, const auto& function, const auto& row, const auto& column,
                        const auto& diagonal) {
                        if ((partial >> (m * NT + n) & 1) != 0 && !function.value(row, column, diagonal)) hide(m, n, e);
                    });
    } else {
        each_function_value<MaskFunction, config, MT, NT>(
            p, seq, place,
            [&](int m, int n, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
                if (!function.value(row, column, diagonal)) hide(m, n, e);
            });
    }
}

// Which of this lane's scores the mask function shows, a bit for each. They are found before the
// product that computes the scores: there is nothing to compute where there is none, and the scores' registers are free
// for it until then.
template <KernelConfig config, int MT, int NT>
struct ShownScores {
    // Returns whether any lane of the warp has one; the answer is the same in all of them.
    __device__ __forceinline__ bool find(const KernelParams& p, const Sequence& seq, const Place& place) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) word_[w] = ~0u >> (w * 32 + 32 > kScores ? w * 32 + 32 - kScores : 0);
        each_unshown<config, MT, NT>(
            p, seq, place, [&](int m, int n, int e) { word_[number(m, n, e) / 32] &= ~(1u << number(m, n, e) % 32); });
        unsigned any = 0;
#pragma unroll
        for (int w = 0; w < kWords; ++w) any |= word_[w];
        return __any_sync(~0u, any != 0);
    }
    __device__ __forceinline__ void hide_others(Fragments<MT, NT>& s) const {
        each_score<MT, NT>([&](int m, int n, int e) {
            if ((word_[number(m, n, e) / 32] >> number(m, n, e) % 32 & 1) == 0) s.c[m][n][e] = -infinity();
        });
    }

private:
    static constexpr int kScores = MT * NT * 4, kWords = (kScores + 31) / 32;
    __device__ static __forceinline__ constexpr int number(int m, int n, int e) {
        return (m * NT + n) * 4 + e;
    }

    unsigned word_[kWords];
};

}  // namespace flashtile
