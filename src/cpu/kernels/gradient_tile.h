// gradient_tile.h: P and dS of one panel of queries and one block of keys, computed again from Q, K, V, dO, LSE and D:
// lines 9 to 11, 13 and 14 of FlashAttention-2's Algorithm 2. backward.h multiplies them into dV, dK and dQ, and
// backward_bias.h adds them up to dbias, backward_tensors.h to the gradients of named tensors.
#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/dropout.h"
#include "cpu/kernels/moves.h"
#include "cpu/kernels/prefetch.h"
#include "cpu/kernels/scores.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class GradientTile {
    using Scalar = typename Math::Scalar;
    static constexpr int64_t Bc = kBackwardKeys;

public:
    // Where the tile's fp32 rows of P^T and dS^T go: row n at n * stride, which is kPanel for tiles.
    struct Output {
        float* p;
        float* ds;
        int64_t stride;
        DerivativeBy by =
            DerivativeBy::product;  // dS is that of scale * q.k, of what bias is added to, or of the score
    };
    // One panel of queries, packed for both products.
    struct Queries {
        int64_t i0, count;
        const Scalar* q;
        const Scalar* dout;
        const float* lse;
        const float* D;
    };

    // For up to `keys` keys loaded at a time, Bc of them in a tile.
    GradientTile(const Problem& problem, Arena& arena, int64_t keys) : d_(problem.head_dim), dv_(problem.head_dim_v) {
        const int64_t widest = d_ > dv_ ? d_ : dv_;
        k_ = arena.take<Scalar>(keys * row_step<Math>(d_));
        v_ = arena.take<Scalar>(keys * row_step<Math>(dv_));
        s_ = arena.take<float>(Bc * kPanel);
        dp_ = arena.take<float>(Bc * kPanel);
        derivative_ = arena.take<float>(Bc * kPanel);
        keep_ = arena.take<float>(Bc * kPanel);
        tile_ = arena.take<float>((round_up(widest > Bc ? widest : Bc, kLanes) + kLanes) * kPanel);
        rows_ = arena.take<float>(kLanes * round_up(widest > Bc ? widest : Bc, kLanes));
        functions_ = arena.take<int64_t>(function_scratch(problem.functions));
    }

    void load_keys(const Head& head, int64_t j0, int64_t j1) {
        first_key_ = j0;
        if constexpr (kCounted) {
            count_load(Moved::k, (j1 - j0) * d_, head.k.bytes);
            count_load(Moved::v, (j1 - j0) * dv_, head.v.bytes);
        }
        block_k_ = rows_operand<Math>(head.k, j0, j1, d_, k_);
        block_v_ = rows_operand<Math>(head.v, j0, j1, dv_, v_);
    }

    // Q^T and dO^T. A query that saw no key (lse = -inf) reads as zero: nothing that lies there has an effect.
    Queries load_queries(const Head& head, const cpu::BackwardState& state, int64_t h, int64_t i0, Scalar* q,
                         Scalar* dout) {
        const int64_t count = head.seqlen_q - i0 < kPanel ? head.seqlen_q - i0 : kPanel;
        if constexpr (kCounted) {
            count_load(Moved::q, count * d_, head.q.bytes);
            count_load(Moved::dout, count * dv_, head.dout.bytes);
            count_load(Moved::lse, count, sizeof(float));
            count_load(Moved::D, count, sizeof(float));
        }
        load_packed_panel<Math>(head.q, i0, count, d_, head.query_factor(), rows_, q);
        load_packed_panel<Math>(head.dout, i0, count, dv_, 1.0f, rows_, dout);
        const int64_t at = (h * state.panels + head.first_unit(kPanel)) * kPanel + i0;
        for (int64_t lane = 0; lane < count; ++lane)
            if (state.lse[at + lane] == __builtin_inff()) {
                clear_lane(q, packed_panel_size<Math>(d_), lane);
                clear_lane(dout, packed_panel_size<Math>(dv_), lane);
            }
        return {i0, count, q, dout, state.lse + at, state.D + at};
    }

    // Names the rows of queries that come next. Some of their lines are prefetched at each row of scores.
    void look_ahead(const Prefetch& q, const Prefetch& dout, int64_t steps) {
        next_q_ = q;
        next_dout_ = dout;
        q_lines_ = (q.lines() + steps - 1) / steps;
        dout_lines_ = (dout.lines() + steps - 1) / steps;
    }

    // P = e^(S - LSE), dP = dO V^T, dS = P * (dP - D), for keys [from, to) of the loaded block, of which the mask
    // function shows what `shown` says. `visible`, where not null, is as in modify_scores; returns true if all keys are
    // seen. Dropped probabilities are 0 in P, and P, dP lack dropout's factor.
    bool compute(const Head& head, const Queries& queries, int64_t from, int64_t to, functions::Visible shown,
                 uint8_t* visible, const Output& out) {
        const ScoreTile tile{s_, queries.i0, queries.count, from, to, shown};
        const bool plain = !head.modified() && !head.drops && shown == functions::Visible::all &&
                           head.band.covers(queries.i0, queries.i0 + queries.count, from, to);
        const Vec lse[2] = {load(queries.lse), load(queries.lse + kLanes)};
        const Vec D[2] = {load(queries.D), load(queries.D + kLanes)};
        const float unit = head.score_unit();
        const Scalar* k = block_k_.data + (from - first_key_) * block_k_.row;
        const Scalar* v = block_v_.data + (from - first_key_) * block_v_.row;

        const int64_t keys = to - from;
        if (plain) {
            exponentials(k, v, queries, keys, unit, out);
            return true;
        }

        products(k, block_k_.row, queries.q, keys, d_, s_);
        if (head.modified()) scale_tile(tile, head.score_factor());
        products(v, block_v_.row, queries.dout, keys, dv_, dp_);
        const bool at_the_function = out.by == DerivativeBy::function;
        const bool derived =
            !at_the_function && (head.functions.score || (head.softcap != 0.0f && out.by == DerivativeBy::product));
        const bool all_visible = modify_scores(head, tile, derived || at_the_function ? derivative_ : nullptr, out.by,
                                               visible, {tile_, rows_, functions_});
        if (head.drops) dropout_keep(head, tile, keep_);
        const float kept = head.drops ? head.dropout.scale() : 1.0f;
        const Vec infinity = broadcast(__builtin_inff());
        const IntVec absent[2] = {lse[0] == infinity, lse[1] == infinity};
        for (int64_t j = 0; j < keys; ++j)
            for (int half = 0; half < 2; ++half) {
                const int64_t n = j * kPanel + half * kLanes;
                const Vec s = load(s_ + n);
                // A hidden score, and a lane that holds no query, must give 0 whatever dP holds there, so both are
                // selected, not multiplied.
                const auto hidden = (s * unit <= kLeastScore) | absent[half];
                const Vec p = hidden ? Vec{} : probability(s, unit, lse[half]);
                const Vec keep = head.drops ? load(keep_ + n) : broadcast(1.0f);
                Vec ds = p * (load(dp_ + n) * keep * kept - D[half]);
                if (derived) ds *= load(derivative_ + n);
                store(out.p + j * out.stride + half * kLanes, p * keep);
                store(out.ds + j * out.stride + half * kLanes, hidden ? Vec{} : ds);
            }
        return all_visible;
    }

    // The scores that the score function was given, where compute() was asked for dS at the function.
    const float* given_scores() const { return derivative_; }

    // The loaded keys down the columns of K.
    Operand2d<Math> k_columns() const requires(Math::kPack == 1) { return {block_k_.data, 1, block_k_.row}; }

private:
    // P = e^(score - LSE), of the score as forward rounds it, and in all places alike: the compiler would fuse the
    // product and the difference in one and not in another, and bits would depend on how keys fall into blocks.
    [[gnu::always_inline]] static Vec probability(Vec s, float unit, Vec lse) {
        return exp2((rounded(s * unit) - lse) * kLog2e);
    }

    // P and dS where scores need no change, computed while the products are still in registers.
    void exponentials(const Scalar* k, const Scalar* v, const Queries& queries, int64_t keys, float unit,
                      const Output& out) requires(!Math::kTiles) {
        const Vec lse0 = load(queries.lse), lse1 = load(queries.lse + kLanes);
        const Vec d0 = load(queries.D), d1 = load(queries.D + kLanes);
        dot_products<Math>(k, block_k_.row, queries.q, keys, words_of<Math>(d_), [=, this](int64_t j, Vec s0, Vec s1) {
            look_ahead();
            store(out.p + j * out.stride, probability(s0, unit, lse0));
            store(out.p + j * out.stride + kLanes, probability(s1, unit, lse1));
        });
        dot_products<Math>(v, block_v_.row, queries.dout, keys, words_of<Math>(dv_), [=](int64_t j, Vec dp0, Vec dp1) {
            const float* p = out.p + j * out.stride;
            store(out.ds + j * out.stride, load(p) * (dp0 - d0));
            store(out.ds + j * out.stride + kLanes, load(p + kLanes) * (dp1 - d1));
        });
    }

    // The same on S and dP in memory, where tiles leave them; P and dS take their places.
    void exponentials(const Scalar* k, const Scalar* v, const Queries& queries, int64_t keys, float unit,
                      const Output& out) requires(Math::kTiles) {
        products(k, block_k_.row, queries.q, keys, d_, out.p);
        products(v, block_v_.row, queries.dout, keys, dv_, out.ds);
        for (int64_t j = 0; j < keys; ++j) {
            look_ahead();
            for (int64_t n = j * kPanel, half = 0; half < kPanel; n += kLanes, half += kLanes) {
                const Vec p = probability(load(out.p + n), unit, load(queries.lse + half));
                store(out.p + n, p);
                store(out.ds + n, p * (load(out.ds + n) - load(queries.D + half)));
            }
        }
    }

    void look_ahead() {
        next_q_.step(q_lines_);
        next_dout_.step(dout_lines_);
    }

    // S^T or dP^T of `keys` rows; tiles write up to a multiple of 16.
    static void products(const Scalar* rows, int64_t row, const Scalar* panel, int64_t keys, int64_t cols, float* c) {
        if constexpr (Math::kTiles) {
            tile_product<false, Math::kScores>(rows, Math::row_tiles(row), panel, kPanel, keys, steps_of<Math>(cols), c,
                                               kPanel);
        } else {
            dot_products<Math>(rows, row, panel, keys, words_of<Math>(cols), [=](int64_t j, Vec x0, Vec x1) {
                store(c + j * kPanel, x0);
                store(c + j * kPanel + kLanes, x1);
            });
        }
    }

    static void clear_lane(Scalar* panel, int64_t size, int64_t lane) {
        for (int64_t n = lane; n < size; n += kPanel) panel[n] = 0;
    }

    int64_t d_, dv_;
    int64_t first_key_ = 0;
    Operand2d<Math> block_k_{}, block_v_{};
    Prefetch next_q_, next_dout_;
    int64_t q_lines_ = 0, dout_lines_ = 0;
    Scalar *k_, *v_;
    float *s_, *dp_, *derivative_, *keep_, *tile_, *rows_;
    int64_t* functions_;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
