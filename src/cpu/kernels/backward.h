// backward.h: FlashAttention-2's backward pass (arXiv 2307.08691, Algorithm 2). One task owns a block of Bc keys of one
// key head and walks the blocks of Br queries that see it, for every query head of the group: BackwardKeys::run() is
// both loops, and tile_products() is lines 10 to 16 for one block of queries and one block of keys. P is computed again
// from the scores and LSE (gradient_tile.h), dV and dK stay in the task, and dQ is added to in fp32. As in forward.h
// the tiles S^T, dP^T and dQ^T have queries in their lanes; dV and dK have columns there.
#pragma once

#include "cpu/kernels/gradient_tile.h"
#include "cpu/kernels/moves.h"
#include "cpu/turn.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Lines 3 and 4: dQ = 0; D = rowsum(dO * O), less dlse, since the gradient of LSE is P. Queries that see no
// key, and lanes that hold no query, get +inf for LSE, which makes every P of theirs 0.
inline void prepare_queries(const Problem& p, const Head& head, const cpu::BackwardState& state, int64_t h,
                            int64_t first, int64_t end, float* row_buffer) {
    const int64_t unit = h * state.panels + head.first_unit(kPanel);
    const int64_t dv = p.head_dim_v, width = round_up(dv, kLanes);
    float* o = row_buffer;
    float* dout = row_buffer + width;
    memset(o, 0, static_cast<size_t>(2 * width) * sizeof(float));
    for (int64_t i = first; i < round_up(end, kPanel); ++i) {
        float lse = __builtin_inff(), D = 0.0f;
        const float given = i < end ? head.lse.element(i, 0) : -__builtin_inff();
        if (given != -__builtin_inff()) {
            load_row(head.out.dtype, head.out.at(i), dv, o);
            load_row(head.dout.dtype, head.dout.at(i), dv, dout);
            Vec sum{};
            for (int64_t c = 0; c < width; c += kLanes) sum += load(o + c) * load(dout + c);
            for (int lane = 0; lane < kLanes; ++lane) D += sum[lane];
            if (head.dlse) D -= head.dlse.element(i, 0);
            lse = given;
        }
        state.lse[unit * kPanel + i] = lse;
        state.D[unit * kPanel + i] = D;
    }
    if constexpr (kCounted) {
        count_load(Moved::lse, end - first, head.lse.bytes);
        count_load(Moved::out, (end - first) * dv, head.out.bytes);
        count_load(Moved::dout, (end - first) * dv, head.dout.bytes);
        count_store(Moved::lse, end - first, sizeof(float));
        count_store(Moved::D, end - first, sizeof(float));
        count_store(Moved::dq, (end - first) * p.head_dim, sizeof(float));
    }
    float* dq = state.dq + (unit + first / kPanel) * state.dq_rows * kPanel;
    memset(dq, 0, static_cast<size_t>(round_up(end - first, kPanel) * state.dq_rows) * sizeof(float));
}

// dq = scale * dQ, from panels to rows of q's type.
inline void finish_queries(const Problem& p, const Head& head, const cpu::BackwardState& state, int64_t h,
                           int64_t first, int64_t end, float* row_buffer) {
    alignas(64) float scale[kPanel];
    for (float& x : scale) x = p.scale;
    if constexpr (kCounted) {
        count_load(Moved::dq, (end - first) * p.head_dim, sizeof(float));
        count_store(Moved::dq, (end - first) * p.head_dim, head.dq.bytes);
    }
    const int64_t unit = h * state.panels + head.first_unit(kPanel);
    for (int64_t i = first; i < end; i += kPanel)
        store_panel(state.dq + (unit + i / kPanel) * state.dq_rows * kPanel, p.head_dim, scale, row_buffer, head.dq, i,
                    end - i < kPanel ? end - i : kPanel);
}

// Br: queries of a block, a multiple of kBackwardQueries.
template <class Math, int64_t Br>
class BackwardKeys {
    using Scalar = typename Math::Scalar;
    using Tile = GradientTile<Math>;
    static constexpr int64_t Bc = kBackwardKeys;
    static constexpr int64_t kPanels = Br / kPanel;
    // Rows of P^T and dS^T over the block's queries are padded past a power of two, so that a column of them spreads
    // over the cache's sets. Where these are in pairs, fp32 has room for one panel.
    static constexpr bool kPairs = Math::kPack > 1;
    static constexpr int64_t kRow = Br / Math::kPack * Math::kParts + kLanes;
    static constexpr int64_t kPanelPairs = Bc / 2 * Math::kParts * kPanel;
    static constexpr int64_t kStride = kPairs ? int64_t{kPanel} : kRow;

public:
    static constexpr int64_t kQueries = Br;

    BackwardKeys(const Problem& problem, const Operands& operands, const cpu::BackwardState& state, std::byte* scratch)
        : problem_(problem),
          operands_(operands),
          state_(state),
          arena_(scratch),
          keys_(state.key_block),
          tile_(problem, arena_, keys_),
          d_(problem.head_dim),
          dv_(problem.head_dim_v),
          d_wide_(round_up(d_, kPanel)),
          dv_wide_(round_up(dv_, kPanel)) {
        q_panel_ = arena_.take<Scalar>(kPanels * packed_panel_size<Math>(d_));
        do_panel_ = arena_.take<Scalar>(kPanels * packed_panel_size<Math>(dv_));
        q_rows_ = arena_.take<Scalar>(Br / Math::kPack * Math::kParts * (d_wide_ + kLanes));
        do_rows_ = arena_.take<Scalar>(Br / Math::kPack * Math::kParts * (dv_wide_ + kLanes));
        k_columns_ = arena_.take<Scalar>(steps_of<Math>(keys_) * column_step<Math>(d_));
        p_ = arena_.take<float>(Bc * kStride);
        ds_ = arena_.take<float>(Bc * kStride);
        if constexpr (kPairs) {
            p_rows_ = arena_.take<Scalar>(Bc * kRow);
            ds_rows_ = arena_.take<Scalar>(Bc * kRow);
            ds_pairs_ = arena_.take<Scalar>(kPanels * kPanelPairs);
        }
        dk_ = arena_.take<float>(keys_ * d_wide_);
        dv_acc_ = arena_.take<float>(keys_ * dv_wide_);
        visible_ = arena_.take<uint8_t>(kPanels * Bc > keys_ ? kPanels * Bc : keys_);
    }

    static std::size_t scratch_bytes(const Problem& problem, int64_t keys) {
        const Operands none{};
        cpu::BackwardState state{};
        state.key_block = keys;
        const BackwardKeys layout(problem, none, state, nullptr);
        return static_cast<std::size_t>(layout.arena_.used(nullptr));
    }

    // dK and dV of keys [first, end) of key head kv_h.
    void run(int64_t b, int64_t kv_h, int64_t first, int64_t end) {
        const int64_t keys = round_up(end - first, Math::kStep);
        memset(dk_, 0, static_cast<size_t>(keys * d_wide_) * sizeof(float));
        memset(dv_acc_, 0, static_cast<size_t>(keys * dv_wide_) * sizeof(float));
        const int64_t group = problem_.heads / problem_.kv_heads;
        Head head{};
        for (int64_t g = 0; g < group; ++g) {
            const int64_t h = kv_h * group + g;
            head = make_head(problem_, operands_, b, h);
            const int64_t used_end = end < head.seqlen_k ? end : head.seqlen_k;
            if (first >= used_end) continue;
            tile_.load_keys(head, first, used_end);
            late_k_ = head.hides() && !all_finite(head.k, first, used_end, d_);
            if constexpr (Math::kPack == 1) {
                k_block_ = tile_.k_columns();
            } else if (!late_k_) {
                k_block_ =
                    columns_operand<Math>(head.k, first, used_end, d_, hidden_rows(head, first, used_end), k_columns_);
            }
            const int64_t i_end = head.band.end_query(used_end - 1, head.seqlen_q);
            const auto queries = VisitedBlocks<int64_t>::holding(head.band.first_query(first), i_end, Br);
            for (int64_t i0 = queries.forwards(0); i0 < i_end; i0 = queries.next_forwards(i0)) {
                const int64_t i1 = lesser(i0 + Br, head.seqlen_q);
                start_queries(head, h, i0, i1);
                for (int64_t j0 = first; j0 < used_end; j0 += Bc)
                    tile_products(head, h, i0, i1, first, j0, lesser(j0 + Bc, used_end));
            }
        }
        if constexpr (kCounted) {
            count_store(Moved::dk, (end - first) * d_, head.dk.bytes);
            count_store(Moved::dv, (end - first) * dv_, head.dv.bytes);
        }
        write(head.dk, dk_, d_, d_wide_, first, end, problem_.scale);
        write(head.dv, dv_acc_, dv_, dv_wide_, first, end, head.drops ? head.dropout.scale() : 1.0f);
    }

private:
    // In pairs of keys a visible key may meet one that the band hides from every query, which must then read as zero.
    // Returns flags for columns_operand, or null where there is no such key.
    const uint8_t* hidden_rows(const Head& head, int64_t first, int64_t end) {
        const int64_t seen_first = head.band.first_key(0);
        const int64_t seen_end = head.band.end_key(head.seqlen_q - 1, head.seqlen_k);
        if (Math::kPack == 1 || (first >= seen_first && end <= seen_end)) return nullptr;
        for (int64_t j = first; j < end; ++j) visible_[j - first] = j >= seen_first && j < seen_end;
        return visible_;
    }

    // Line 9 for a block of queries; load_panel does the rest when a panel is first needed.
    void start_queries(const Head& head, int64_t h, int64_t i0, int64_t i1) {
        loaded_ = 0;
        query_rows_ = query_rows(head.q, head, h, i0, i1, d_, d_wide_, q_rows_);
        dout_rows_ = query_rows(head.dout, head, h, i0, i1, dv_, dv_wide_, do_rows_);
    }
    void load_panel(const Head& head, int64_t h, int64_t i0, int64_t i1, int64_t n) {
        const int64_t first = i0 + n * kPanel, end = lesser(first + kPanel, i1);
        if (query_rows_.data == q_rows_) copy_query_rows(head.q, head, h, i0, first, end, d_, d_wide_, q_rows_);
        if (dout_rows_.data == do_rows_) copy_query_rows(head.dout, head, h, i0, first, end, dv_, dv_wide_, do_rows_);
        Scalar* q = q_panel_ + n * packed_panel_size<Math>(d_);
        Scalar* dout = do_panel_ + n * packed_panel_size<Math>(dv_);
        queries_[n] = tile_.load_queries(head, state_, h, first, q, dout);
        loaded_ = n + 1;
        // Whatever panel comes next. Only one: lines of rows that lie a power of two apart share few sets of a cache.
        const int64_t next_end = lesser(end + kPanel, head.seqlen_q);
        tile_.look_ahead(Prefetch(head.q, end, next_end, d_), Prefetch(head.dout, end, next_end, dv_), Bc);
    }

    // One block of queries against Bc of the task's keys: lines 10 to 16.
    void tile_products(const Head& head, int64_t h, int64_t i0, int64_t i1, int64_t first_key, int64_t j0, int64_t j1) {
        const int64_t seen_from = head.band.first_key(i0);
        const int64_t seen_to = head.band.end_key(i1 - 1, head.seqlen_k);
        if (seen_from >= j1 || seen_to <= j0) return;

        const bool hidden = head.shown(i0, i1, j0, j1) == functions::Visible::none;
        const int64_t panels = hidden ? 0 : (i1 - i0 + kPanel - 1) / kPanel;
        const int64_t rows = hidden ? 0 : round_up(i1 - i0, kPanel);
        const int64_t whole = round_up(j1 - j0, Math::kStep);
        struct Range {
            int64_t from, to;
            bool all_visible;
        } range[kPanels];
        for (int64_t n = 0; n < panels; ++n) {
            if (n == loaded_) load_panel(head, h, i0, i1, n);
            const typename Tile::Queries& queries = queries_[n];
            const int64_t last = queries.i0 + queries.count - 1;
            const int64_t from = clamp(head.band.first_key(queries.i0), j0, j1) - j0;
            const int64_t to = clamp(head.band.end_key(last, head.seqlen_k), j0, j1) - j0;
            range[n] = {from / Math::kStep * Math::kStep, to, true};
            if (from >= to) range[n].from = range[n].to = 0;
            const int64_t at = kPairs ? 0 : n * kPanel;
            float* p = p_ + at;
            float* ds = ds_ + at;
            uint8_t* visible = late_k_ ? visible_ + n * Bc : nullptr;
            const int64_t begin = range[n].from;
            const functions::Visible shown = head.shown(queries.i0, last + 1, j0 + from, j0 + to);
            if (shown == functions::Visible::none) range[n].from = range[n].to = 0;
            if (range[n].from < range[n].to)
                range[n].all_visible = tile_.compute(head, queries, j0 + begin, j0 + to, shown, visible,
                                                     {p + begin * kStride, ds + begin * kStride, kStride});
            clear(p, ds, 0, begin);
            clear(p, ds, range[n].to, whole);
            if constexpr (kPairs) pack_panel(n, whole);
        }

        // dV += P^T dO, dK += dS^T Q
        if (!hidden)
            add_columns(p_operand(), dout_rows_, dv_wide_, dv_acc_ + (j0 - first_key) * dv_wide_, j1 - j0, rows);
        if (!hidden) add_columns(ds_operand(), query_rows_, d_wide_, dk_ + (j0 - first_key) * d_wide_, j1 - j0, rows);

        // dQ += dS K, in the order of key blocks
        std::uint32_t* turn = state_.turn + h * state_.query_blocks + head.first_unit(Br) + i0 / Br;
        const int64_t unit = lesser(state_.key_block, Bc);
        const auto mine = static_cast<std::uint32_t>(j0 / unit - seen_from / unit);
        cpu::wait_for_turn(turn, mine);
        for (int64_t n = 0; n < panels; ++n)
            if (range[n].from < range[n].to)
                add_dq(head, h, i0, n, first_key, j0, range[n].from, range[n].to, range[n].all_visible);
        cpu::pass_turn(turn, mine + 1);
    }

    static void clear(float* p, float* ds, int64_t from, int64_t to) {
        for (int64_t j = from; j < to; ++j)
            for (int half = 0; half < 2; ++half) {
                store(p + j * kStride + half * kLanes, Vec{});
                store(ds + j * kStride + half * kLanes, Vec{});
            }
    }

    // Rows of queries as the B panel of a product over them: row i / kPack at data + i / kPack * kParts * step.
    struct QueryRows {
        const Scalar* data;
        int64_t step;
    };

    // Where rows [i0, i1) are read: in place if there is nothing to fill in, to widen or to gather, else in the buffer,
    // to which copy_query_rows then brings them.
    QueryRows query_rows(const Rows& x, const Head& head, int64_t h, int64_t i0, int64_t i1, int64_t cols, int64_t wide,
                         Scalar* buffer) const {
        if constexpr (Math::kPack == 1) {
            bool in_place = x.dtype == DType::fp32 && lies_close(x, cols) && cols == wide && (i1 - i0) % kPanel == 0;
            for (int64_t i = i0; in_place && i < i1; ++i) in_place = sees_keys(head, h, i);
            if (in_place) return {reinterpret_cast<const float*>(x.at(i0)), x.stride_row};
        }
        return {buffer, wide + kLanes};
    }

    // Rows [i0, i1) of the block that starts at `first`; zero past the columns, past the rows of the panel and where a
    // query saw no key.
    void copy_query_rows(const Rows& x, const Head& head, int64_t h, int64_t first, int64_t i0, int64_t i1,
                         int64_t cols, int64_t wide, Scalar* buffer) const {
        const auto present = [&](int64_t i) { return i < i1 && sees_keys(head, h, i); };
        const int64_t step = wide + kLanes;
        Scalar* row = buffer + (i0 - first) / Math::kPack * Math::kParts * step;
        for (int64_t n = 0; n < kPanel / Math::kPack; ++n, row += Math::kParts * step) {
            if constexpr (Math::kPack == 1) {
                if (present(i0 + n)) {
                    load_row(x.dtype, x.at(i0 + n), cols, row);
                } else {
                    memset(row, 0, static_cast<size_t>(cols) * sizeof(float));
                }
            } else {
                const int64_t i = i0 + n / Math::kPartner * 2 * Math::kPartner + n % Math::kPartner;
                const auto source = [&](int64_t r) {
                    return present(r) ? reinterpret_cast<const uint16_t*>(x.at(r)) : nullptr;
                };
                interleave<Math>(source(i), source(i + Math::kPartner), cols, row, step);
            }
            for (int64_t part = 0; part < Math::kParts; ++part)
                for (int64_t c = cols; c < wide; ++c) row[part * step + c] = 0;
        }
    }

    bool sees_keys(const Head& head, int64_t h, int64_t i) const {
        return state_.lse[(h * state_.panels + head.first_unit(kPanel)) * kPanel + i] != __builtin_inff();
    }

    // P^T and dS^T as rows operands of products over queries.
    Operand2d<Math> p_operand() const {
        if constexpr (kPairs)
            return {p_rows_, kRow, 1};
        else
            return {p_, kRow, 1};
    }
    Operand2d<Math> ds_operand() const {
        if constexpr (kPairs)
            return {ds_rows_, kRow, 1};
        else
            return {ds_, kRow, 1};
    }
    // Panel n in bf16: pairs of queries for dV and dK, pairs of keys for dQ.
    void pack_panel(int64_t n, int64_t keys) requires(kPairs) {
        for (int64_t j = 0; j < keys; j += 2) {
            Vec ds[2][2];
            FLASHTILE_UNROLL
            for (int key = 0; key < 2; ++key) {
                const float* p = p_ + (j + key) * kPanel;
                for (int half = 0; half < 2; ++half) ds[key][half] = load(ds_ + (j + key) * kPanel + half * kLanes);
                const int64_t at = (j + key) * kRow + n * kPanel / 2 * Math::kParts;
                Math::store_row(p_rows_ + at, load(p), load(p + kLanes));
                Math::store_row(ds_rows_ + at, ds[key][0], ds[key][1]);
            }
            for (int half = 0; half < 2; ++half)
                Math::store_pair(ds_pairs_ + n * kPanelPairs + j / 2 * Math::kParts * kPanel + half * kLanes,
                                 ds[0][half], ds[1][half]);
        }
    }

    // acc[key][columns] += A^T B over the block's queries. The block is summed by itself: one chain of roundings
    // through all queries of all heads of a group would drift past standard attention's error.
    static void add_columns(const Operand2d<Math>& a, const QueryRows& b, int64_t wide, float* acc, int64_t keys,
                            int64_t rows) {
        for (int64_t c = 0; c < wide; c += kPanel) {
            float* slab = acc + c;
            if constexpr (Math::kTiles) {
                tile_product<true, Math::kSums>(a.data, Math::row_tiles(a.row), b.data + c, b.step, keys,
                                                steps_of<Math>(rows), slab, wide);
            } else {
                product<Math>(
                    a.data, a.row, a.step, b.data + c, b.step, keys, rows / Math::kPack,
                    [](int64_t, int) { return Vec{}; },
                    [=](int64_t j, Vec c0, Vec c1) {
                        store(slab + j * wide, load(slab + j * wide) + c0);
                        store(slab + j * wide + kLanes, load(slab + j * wide + kLanes) + c1);
                    });
            }
        }
    }

    // dQ^T += K^T dS^T for panel n, over keys [from, to) of the block
    void add_dq(const Head& head, int64_t h, int64_t i0, int64_t n, int64_t first_key, int64_t j0, int64_t from,
                int64_t to, bool all_visible) {
        float* dq =
            state_.dq + (h * state_.panels + head.first_unit(kPanel) + i0 / kPanel + n) * state_.dq_rows * kPanel;
        if constexpr (kCounted) {
            count_load(Moved::dq, queries_[n].count * d_, sizeof(float));
            count_store(Moved::dq, queries_[n].count * d_, sizeof(float));
        }
        Operand2d<Math> k;
        if (late_k_) {
            k = columns_operand<Math>(head.k, j0 + from, j0 + to, d_, all_visible ? nullptr : visible_ + n * Bc,
                                      k_columns_);
        } else {
            k = k_block_;
            k.data += (j0 - first_key + from) / Math::kStep * k.step;
        }
        if constexpr (Math::kTiles) {
            tile_product<true, Math::kSums>(k.data, Math::column_tiles(d_), ds_pairs(n, from), kPanel, d_,
                                            steps_of<Math>(to - from), dq, kPanel);
        } else {
            const Scalar* ds;
            if constexpr (kPairs)
                ds = ds_pairs(n, from);
            else
                ds = ds_ + n * kPanel + from * kStride;
            product<Math>(
                k.data, k.row, k.step, ds, kStride, d_, steps_of<Math>(to - from),
                [=](int64_t c, int half) { return load(dq + c * kPanel + half * kLanes); },
                [=](int64_t c, Vec c0, Vec c1) {
                    store(dq + c * kPanel, c0);
                    store(dq + c * kPanel + kLanes, c1);
                });
        }
    }
    const Scalar* ds_pairs(int64_t n, int64_t from) const requires(kPairs) {
        return ds_pairs_ + n * kPanelPairs + from / 2 * Math::kParts * kPanel;
    }

    // Keys past seqused get zero gradients like any key that no query sees.
    static void write(const Rows& dst, float* acc, int64_t cols, int64_t wide, int64_t first, int64_t end,
                      float factor) {
        for (int64_t j = first; j < end; ++j) {
            float* row = acc + (j - first) * wide;
            for (int64_t c = 0; c < wide; c += kLanes) store(row + c, load(row + c) * factor);
            store_row(dst.dtype, row, cols, dst.at(j));
        }
    }

    const Problem& problem_;
    const Operands& operands_;
    const cpu::BackwardState& state_;
    Arena arena_;
    int64_t keys_;
    Tile tile_;
    int64_t d_, dv_, d_wide_, dv_wide_;
    Scalar *q_panel_, *do_panel_, *q_rows_, *do_rows_, *k_columns_;
    Scalar *p_rows_ = nullptr, *ds_rows_ = nullptr, *ds_pairs_ = nullptr;  // of two-byte types alone
    float *p_, *ds_, *dk_, *dv_acc_;
    uint8_t* visible_;
    Operand2d<Math> k_block_{};
    bool late_k_ = false;  // K of the task waits for the scores, which may hide keys where it is not finite
    // The block of queries at work: its rows, and its panels as far as they are loaded.
    QueryRows query_rows_{}, dout_rows_{};
    typename Tile::Queries queries_[kPanels];
    int64_t loaded_ = 0;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
