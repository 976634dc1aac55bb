// transposed_functions.h: the user's functions where a warp holds S^T: its 16 rows are keys, and the columns are
// queries.
#pragma once

#include "cuda/kernels/parts/common/functions.h"
#include "cuda/kernels/parts/common/scores.h"

namespace flashtile {

// As each_function_value. place.i0 is the first key, place.j0 the first query.
template <template <KernelConfig> class Function, KernelConfig config, int NT, class Body>
__device__ __forceinline__ void each_function_value_transposed(const KernelParams& p, const Sequence& seq,
                                                               const Place& place, Body body) {
    const Function<config> function(arguments_of(p, seq));
    const Position<config> j0(origin_j_of(p, seq.b) + place.i0 + Place::row(0, 0));
    const Position<config> i0(origin_i_of(p, seq.b) + place.j0 + Place::column(0, 0));
    const typename Function<config>::Column columns[2] = {function.column_of(j0), function.column_of(j0.further(8))};
    typename Function<config>::Diagonal diagonals[2][2];
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int second = 0; second < 2; ++second) {
            const typename Function<config>::Row row = function.row_of(i0.further(n * 8 + second));
            auto& now = diagonals[second];
            now[1] = n == 0 ? function.diagonal_of(row, columns[1]) : now[0];
            now[0] = function.diagonal_of(row, columns[0]);
#pragma unroll
            for (int half = 0; half < 2; ++half) body(n, 2 * half + second, function, row, columns[half], now[half]);
        }
}

// Calls hide(n, e) for every score of this lane that lists of blocks or the mask function hide.
template <KernelConfig config, int NT, class Hide>
__device__ __forceinline__ void each_unshown_transposed(const KernelParams& p, const Sequence& seq, const Place& place,
                                                        Hide hide) {
    if constexpr (config.block_lists) {
        static_assert(NT <= 32, "");
        unsigned partial = 0;  // fragments in which the mask function counts
        each_listed_fragment<1, NT, true>(p, seq, place, [&](int, int n, BlockKind kind) {
            if (kind == BlockKind::hidden)
#pragma unroll
                for (int e = 0; e < 4; ++e) hide(n, e);
            if (kind == BlockKind::partial) partial |= 1u << n;
        });
        if constexpr (!config.lists_alone)
            if (partial != 0)
                each_function_value_transposed<MaskFunction, config, NT>(
                    p, seq, place,
                    [&](int n, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
                        if ((partial >> n & 1) != 0 && !function.value(row, column, diagonal)) hide(n, e);
                    });
    } else {
        each_function_value_transposed<MaskFunction, config, NT>(
            p, seq, place,
            [&](int n, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
                if (!function.value(row, column, diagonal)) hide(n, e);
            });
    }
}

// Which of this lane's scores the mask function shows, a bit for each, which are found while the registers of dP are
// free.
template <KernelConfig config, int NT>
struct ShownTransposed {
    unsigned word[NT / 8];

    __device__ __forceinline__ void find(const KernelParams& p, const Sequence& seq, const Place& place) {
#pragma unroll
        for (unsigned& bits : word) bits = ~0u;
        each_unshown_transposed<config, NT>(p, seq, place,
                                            [&](int n, int e) { word[n / 8] &= ~(1u << (n % 8 * 4 + e)); });
    }
    __device__ __forceinline__ void hide_others(Fragments<1, NT>& s) const {
        each_score<1, NT>([&](int m, int n, int e) {
            if ((word[n / 8] >> (n % 8 * 4 + e) & 1) == 0) s.c[m][n][e] = -infinity();
        });
    }
};

// Of a score function whose derivative is 1: s becomes its value. A key that is hidden stays so.
template <KernelConfig config, int NT>
__device__ __forceinline__ void apply_score_function_transposed(Fragments<1, NT>& s, const KernelParams& p,
                                                                const Sequence& seq, const Place& place) {
    each_function_value_transposed<ScoreFunction, config, NT>(
        p, seq, place,
        [&](int n, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
            float& x = s.c[0][n][e];
            float by_s;
            const float value = function.value(row, column, diagonal, x, by_s);
            x = x <= kHiddenScore ? -infinity() : value;
        });
}
template <KernelConfig config>
constexpr bool has_score_derivative() {
    if constexpr (config.score_function)
        return !ScoreFunction<config>::kUnitDerivative;
    else
        return false;
}

// Whether lists of blocks and the mask function show key j to query i.
template <KernelConfig config>
__device__ __forceinline__ bool mask_shows(const KernelParams& p, const Sequence& seq, int i, int j) {
    BlockKind kind = BlockKind::partial;
    if constexpr (config.block_lists) kind = block_kinds_of(p, seq).at(i, j);
    if (config.lists_alone || kind != BlockKind::partial) return kind != BlockKind::hidden;
    if constexpr (!config.lists_alone) {
        const MaskFunction<config> function(arguments_of(p, seq));
        const auto row = function.row_of(Position<config>(origin_i_of(p, seq.b) + i));
        const auto column = function.column_of(Position<config>(origin_j_of(p, seq.b) + j));
        return function.value(row, column, function.diagonal_of(row, column));
    }
}

}  // namespace flashtile
