// backward_bias.h: the gradient of an additive bias: dS summed over the dimensions that bias broadcasts. It is a pass
// of its own over dbias's tiles, each summed by one task in a fixed order: no atomics, no quadratic scratch, and the
// same bits at any thread count, for the price of computing S and dP again.
#pragma once

#include "cpu/kernels/gradient_tile.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class BackwardBias {
    using Scalar = typename Math::Scalar;
    using Tile = GradientTile<Math>;
    static constexpr int64_t Bc = kBackwardKeys;

public:
    BackwardBias(const Problem& problem, const Operands& operands, const cpu::BackwardState& state, std::byte* scratch)
        : problem_(problem), operands_(operands), state_(state), arena_(scratch), tile_(problem, arena_, Bc) {
        q_ = arena_.take<Scalar>(packed_panel_size<Math>(problem.head_dim));
        dout_ = arena_.take<Scalar>(packed_panel_size<Math>(problem.head_dim_v));
        p_ = arena_.take<float>(Bc * kPanel);
        ds_ = arena_.take<float>(Bc * kPanel);
        sum_ = arena_.take<float>(Bc * kPanel);
        rows_ = arena_.take<float>(kLanes * Bc);
    }

    static std::size_t scratch_bytes(const Problem& problem) {
        const Operands none{};
        const BackwardBias layout(problem, none, cpu::BackwardState{}, nullptr);
        return static_cast<std::size_t>(layout.arena_.used(nullptr));
    }

    // Rows [first, end) of dbias (b, h), in dbias's own shape; end - first <= kPanel.
    void run(int64_t b, int64_t h, int64_t first, int64_t end) {
        const Rows dbias = rows_of(operands_.dbias, b, h, 0);
        const bool all_rows = operands_.bias_rows == 1;  // one row of dbias sums all queries
        const bool all_cols = operands_.bias_cols == 1;
        const int64_t i_first = all_rows ? 0 : first;
        const int64_t i_end = all_rows ? problem_.seqlen_q : end;
        const size_t bytes = static_cast<size_t>(Bc * kPanel) * sizeof(float);
        memset(sum_, 0, bytes);
        for (int64_t j0 = 0; j0 < problem_.seqlen_k; j0 += Bc) {
            const int64_t j1 = j0 + Bc < problem_.seqlen_k ? j0 + Bc : problem_.seqlen_k;
            for (int64_t bb = operands_.bias_batch == 1 ? 0 : b;
                 bb < (operands_.bias_batch == 1 ? problem_.batch : b + 1); ++bb)
                for (int64_t hh = operands_.bias_heads == 1 ? 0 : h;
                     hh < (operands_.bias_heads == 1 ? problem_.heads : h + 1); ++hh)
                    add(bb, hh, i_first, i_end, j0, j1);
            if (all_cols) continue;
            write(dbias, first, end, j0, j1, all_rows);
            memset(sum_, 0, bytes);
        }
        if (all_cols) {
            for (int64_t j = 1; j < Bc; ++j)
                for (int half = 0; half < kPanel; half += kLanes)
                    store(sum_ + half, load(sum_ + half) + load(sum_ + j * kPanel + half));
            write(dbias, first, end, 0, 1, all_rows);
        }
    }

private:
    void add(int64_t b, int64_t h, int64_t i_first, int64_t i_end, int64_t j0, int64_t j1) {
        const Head head = make_head(problem_, operands_, b, h);
        j1 = j1 < head.seqlen_k ? j1 : head.seqlen_k;
        i_end = i_end < head.seqlen_q ? i_end : head.seqlen_q;
        if (j0 >= j1 || i_first >= i_end) return;
        tile_.load_keys(head, j0, j1);
        for (int64_t i0 = i_first; i0 < i_end; i0 += kPanel) {
            const auto queries = tile_.load_queries(head, state_, h, i0, q_, dout_);
            if (head.band.first_key(i0) >= j1 || head.band.end_key(i0 + queries.count - 1, head.seqlen_k) <= j0)
                continue;
            const functions::Visible shown = head.shown(i0, i0 + queries.count, j0, j1);
            if (shown == functions::Visible::none) continue;
            tile_.compute(head, queries, j0, j1, shown, nullptr, {p_, ds_, kPanel, DerivativeBy::bias});
            for (int64_t n = 0; n < (j1 - j0) * kPanel; n += kLanes) store(sum_ + n, load(sum_ + n) + load(ds_ + n));
        }
    }

    // sum_ [j - j0][kPanel] to dbias; lanes are rows, or are summed into the one row.
    void write(const Rows& dbias, int64_t first, int64_t end, int64_t j0, int64_t j1, bool all_rows) {
        Rows columns = dbias;
        columns.data = dbias.at(0, j0);
        if (!all_rows) {
            alignas(64) float one[kPanel];
            for (float& x : one) x = 1.0f;
            store_panel(sum_, j1 - j0, one, rows_, columns, first, end - first);
            return;
        }
        for (int64_t j = 0; j < j1 - j0; ++j) {
            float total = 0.0f;
            for (int64_t lane = 0; lane < kPanel; ++lane) total += sum_[j * kPanel + lane];
            rows_[j] = total;
        }
        store_row(columns.dtype, rows_, j1 - j0, columns.at(first));
    }

    const Problem& problem_;
    const Operands& operands_;
    const cpu::BackwardState& state_;
    Arena arena_;
    Tile tile_;
    Scalar *q_, *dout_;
    float *p_, *ds_, *sum_, *rows_;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
