// decode.h: attention of few queries, as a text that grows by a token at a time has them (section 3.2 of the paper,
// with the work divided over keys instead of queries). K and V are read once for all query heads of a group. forward.h
// has queries in its lanes, of which few would be in use. Here lanes hold keys in S = Q K^T, which sums the same
// products in the same order, and columns in O = P V. Sums are in fp32, and so are products but those of Q K^T where
// Math multiplies pairs of 16-bit elements.
//
// The keys of a sequence are split (shared/key_splits.h). A split has its own m, l and O, and a row folds its splits in
// their order: in one task, or from what several tasks stored, which gives the same bits. Blocks of keys start at
// multiples of Bc, and a hidden key adds exactly nothing, so a row's bits depend on its own problem only.
#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/row_end.h"
#include "cpu/kernels/row_scores.h"
#include "shared/key_splits.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class Decode {
    static constexpr int64_t Bc = KeySplits::kUnit;
    static constexpr int64_t kTile = kPanel;         // keys that are widened together
    static constexpr int64_t kRowsTogether = 64;     // rows that share what is widened
    static constexpr int64_t kScores = Bc + kLanes;  // more than Bc: rows fall into different sets of the cache

    // One query of one head.
    struct Row {
        Head head;
        int64_t b, h, i;
        int64_t first, end;  // the keys that it may see
        float* part;         // m, l and O of a split
        float* sum;          // m, l and O of the splits so far
    };

public:
    Decode(const Problem& p, const Operands& x, const cpu::DecodeState& state, std::byte* scratch)
        : p_(p), x_(x), state_(state), arena_(scratch), d_(p.head_dim), words_(words_of<Math>(d_)), dv_(width_of_o(p)) {
        const int64_t of_a_sequence = p.group() * greater(p.seqlen_q, 1), width = round_up(d_, kLanes);
        const int64_t rows = p.prefix_groups > 0 ? kRowsTogether : lesser(kRowsTogether, of_a_sequence);
        rows_ = arena_.take<Row>(rows);
        parts_ = arena_.take<float>(rows * part_floats(p));
        sums_ = arena_.take<float>(rows * part_floats(p));
        q_ = arena_.take<typename Math::Scalar>(rows * words_ + kLanes);
        s_ = arena_.take<float>(rows * kScores);
        k_ = arena_.take<typename Math::Scalar>(packed_panel_size<Math>(d_));
        v_ = arena_.take<float>(kTile * dv_);
        line_ = arena_.take<float>(kLanes * greater(width, Bc));
        visible_ = arena_.take<uint8_t>(Bc);
    }

    static std::size_t scratch_bytes(const Problem& p) {
        const Operands none{};
        const cpu::DecodeState state{};
        return static_cast<std::size_t>(Decode(p, none, state, nullptr).arena_.used(nullptr));
    }

    // m, l and O of a row, O in whole vectors.
    static int64_t part_floats(const Problem& p) { return kPanel + width_of_o(p); }

    // Some splits of a key head, for all queries and heads of its group. Where parts are not stored, these are all
    // splits of a sequence, and its rows are finished.
    void run(const cpu::KeyRange& range) {
        const int64_t group = p_.group();
        for (int64_t b = range.b; b < range.end_b; ++b) {
            if (queries_of(b) > state_.few) continue;
            const int64_t rows = make_head(p_, x_, b, range.kv_head * group).seqlen_q * group;
            for (int64_t row = 0; row < rows; ++row) {
                start(b, range.kv_head * group + row % group, row / group);
                if (count_ == kRowsTogether) walk(range);
            }
        }
        if (count_ > 0) walk(range);
    }

    // Folds the stored parts of one query head and finishes its rows.
    void combine(int64_t b, int64_t h) {
        const int64_t queries = make_head(p_, x_, b, h).seqlen_q;
        for (int64_t i = 0; i < queries; ++i) {
            start(b, h, i);
            Row& row = rows_[0];
            const KeySplits splits = KeySplits::of(row.head.seqlen_k, {p_.num_splits});
            for (int64_t split = 0; split < splits.count; ++split) fold(row.sum, stored_part(row, split));
            finish(row);
            count_ = 0;
        }
    }

private:
    static int64_t width_of_o(const Problem& p) { return round_up(p.head_dim_v, kPanel); }

    static float& m_of(float* part) { return part[0]; }
    static float& l_of(float* part) { return part[1]; }
    static float* o_of(float* part) { return part + kPanel; }

    float* stored_part(const Row& row, int64_t split) const {
        const int64_t before = state_.queries > 0 ? row.b * state_.queries : row.head.rows_before;
        return state_.parts + (((before + row.i) * p_.heads + row.h) * state_.splits + split) * part_floats(p_);
    }

    void clear(float* part) const {
        memset(part, 0, static_cast<size_t>(part_floats(p_)) * sizeof(float));
        m_of(part) = kLeastScore;
    }

    // As the layout says, of which seqused_q may leave some.
    int64_t queries_of(int64_t b) const {
        return p_.packed ? length_at(x_.cu_seqlens_q, b + 1) - length_at(x_.cu_seqlens_q, b) : p_.seqlen_q;
    }

    // One more row.
    void start(int64_t b, int64_t h, int64_t i) {
        const int64_t n = count_++;
        Row& row = rows_[n];
        row.head = make_head(p_, x_, b, h);
        row.b = b;
        row.h = h;
        row.i = i;
        row.first = row.head.first_key(i);
        row.end = row.head.end_key(i);
        row.part = parts_ + n * part_floats(p_);
        row.sum = sums_ + n * part_floats(p_);
        load_query(row.head, i, q_ + n * words_);
        clear(row.sum);
    }

    // The rows that have been started, through their splits. They share keys and values.
    void walk(const cpu::KeyRange& range) {
        const KeySplits splits = KeySplits::of(rows_[0].head.seqlen_k, {p_.num_splits});
        int64_t seen = rows_[0].head.seqlen_k, seen_end = 0;
        for (int64_t n = 0; n < count_; ++n) {
            if (rows_[n].first >= rows_[n].end) continue;
            seen = lesser(seen, rows_[n].first);
            seen_end = greater(seen_end, rows_[n].end);
        }
        for (int64_t split = range.first; split < range.end; ++split) {
            const int64_t j0 = split * splits.keys;
            attend(greater(j0, seen), lesser(j0 + splits.keys, seen_end));
            for (int64_t n = 0; n < count_; ++n)
                if (state_.parts != nullptr)
                    memcpy(stored_part(rows_[n], split), rows_[n].part,
                           static_cast<size_t>(part_floats(p_)) * sizeof(float));
                else
                    fold(rows_[n].sum, rows_[n].part);
        }
        if (state_.parts == nullptr)
            for (int64_t n = 0; n < count_; ++n) finish(rows_[n]);
        count_ = 0;
    }

    void load_query(const Head& head, int64_t i, typename Math::Scalar* q) const {
        const bool negative = head.query_factor() < 0.0f;
        if constexpr (Math::kPack == 1) {
            load_row(head.q.dtype, head.q.at(i), d_, q);
            if (negative)
                for (int64_t c = 0; c < d_; ++c) q[c] = -q[c];
        } else {
            q[words_ - 1] = 0;  // what is beside a last odd column
            memcpy(q, head.q.at(i), static_cast<size_t>(d_) * 2);
            if (negative)
                for (int64_t c = 0; c < words_; ++c) q[c] ^= 0x80008000u;
        }
    }

    // Lines 6 to 11 of Algorithm 1 for the keys [from, to) of one split.
    void attend(int64_t from, int64_t to) {
        end_ = to;
        for (int64_t n = 0; n < count_; ++n) clear(rows_[n].part);
        for (int64_t j0 = from / Bc * Bc; j0 < to; j0 += Bc) {
            const int64_t first = greater(from, j0), j1 = lesser(j0 + Bc, to);
            const int64_t first_tile = first / kTile * kTile, lanes = round_up(j1 - first_tile, kTile);
            const RowBlock block{first_tile, lanes, j1};
            const int64_t at = first_tile - j0;
            for (int64_t j = first_tile; j < j1; j += kTile) scores(j, lesser(to, j + kTile), s_ + (j - j0));
            for (int64_t n = 0; n < count_; ++n)
                modify_row(rows_[n].head, rows_[n].i, block, rows_[n].first, rows_[n].end, s_ + n * kScores + at,
                           line_);
            const bool asks = rows_[0].head.bias || rows_[0].head.hides();
            if (asks) find_visible(at, lanes);
            for (int64_t n = 0; n < count_; ++n) softmax(rows_[n], block, s_ + n * kScores + at);
            for (int64_t j = first_tile; j < j1; j += kTile)
                accumulate(j, greater(first, j), lesser(to, j + kTile), s_ + (j - j0),
                           asks ? visible_ + (j - j0) : nullptr);
        }
    }

    // Rows of one head among many lie far apart, where the hardware does not look ahead by itself. The tile after this
    // one is asked for while this one is widened. Inlined always: GCC takes a function that only prefetches for one
    // without effect, and leaves out calls of it.
    [[gnu::always_inline]] void look_ahead(const KeyRows& x, int64_t key, int64_t cols) const {
        if (key + kTile >= end_) return;
        const char* const row = x.at(key + kTile);
        for (int64_t at = 0; at < cols * x.bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
    }

    // Line 8 for the keys [j, to) of one tile: S = Q K^T, which stands at s, kScores from row to row.
    void scores(int64_t j, int64_t to, float* s) {
        for (int64_t key = j; key < to; ++key) look_ahead(rows_[0].head.k, key, d_);
        load_packed_panel<Math>(rows_[0].head.k, j, to - j, d_, 1.0f, line_, k_);
        dot_products<Math>(q_, words_, k_, count_, words_, [=](int64_t n, Vec s0, Vec s1) {
            store(s + n * kScores, s0);
            store(s + n * kScores + kLanes, s1);
        });
    }

    // Keys that a mask or bias hides from all rows: their V may be anything.
    void find_visible(int64_t at, int64_t lanes) {
        for (int64_t n = at; n < at + lanes; ++n) {
            visible_[n] = 0;
            for (int64_t row = 0; row < count_; ++row) visible_[n] |= !(s_[row * kScores + n] <= kLeastScore);
        }
    }

    // Line 9: m, P and l; and of line 10 the factor of O.
    void softmax(Row& row, const RowBlock& block, float* s) {
        const float unit = row.head.score_unit();
        Vec largest = broadcast(-__builtin_inff());
        for (int64_t n = 0; n < block.lanes; n += kLanes) largest = max(load(s + n), largest);
        float* const part = row.part;
        float m = m_of(part);
        for (int lane = 0; lane < kLanes; ++lane) {
            const float score = largest[lane] * unit;
            if (score > m) m = score;
        }
        Vec sum{};
        for (int64_t n = 0; n < block.lanes; n += kLanes) {
            const Vec p = exp2((rounded(load(s + n) * unit) - m) * kLog2e);
            store(s + n, p);
            sum += p;
        }
        float l = 0.0f;
        for (int lane = 0; lane < kLanes; ++lane) l += sum[lane];
        if (row.head.drops) drop_row(row.head, row.i, block, s);
        const float alpha = exp2(broadcast((m_of(part) - m) * kLog2e))[0];
        m_of(part) = m;
        l_of(part) = l_of(part) * alpha + l;
        if (alpha == 1.0f) return;
        float* const o = o_of(part);
        for (int64_t c = 0; c < dv_; c += kLanes) store(o + c, load(o + c) * alpha);
    }

    // Line 10 for a tile of keys at j, of which [from, to) are there: O += P V, with P at p.
    void accumulate(int64_t j, int64_t from, int64_t to, const float* p, const uint8_t* visible) {
        const KeyRows& v = rows_[0].head.v;
        const int64_t cols = p_.head_dim_v;
        for (int64_t key = j; key < to; ++key) look_ahead(v, key, cols);
        // Whole vectors of rows are read in place, page by page.
        const bool all_shown = visible == nullptr && from == j;
        if (cols == dv_ && all_shown && v.has_long_runs() && v.dtype != DType::fp16) {
            for (int64_t key = j, end; key < to; key = end) {
                end = v.end_of_run(key, to);
                if (v.dtype == DType::fp32)
                    add_products(p + (key - j), reinterpret_cast<const float*>(v.at(key)), v.stride_row, end - key);
                else
                    add_products(p + (key - j), reinterpret_cast<const Bf16*>(v.at(key)), v.stride_row, end - key);
            }
            return;
        }
        for (int64_t key = j; key < to; ++key) {
            float* const row = v_ + (key - j) * dv_;
            const bool shown = key >= from && (visible == nullptr || visible[key - j] != 0);
            if (shown) load_row(v.dtype, v.at(key), cols, row);
            const int64_t filled = shown ? cols : 0;
            memset(row + filled, 0, static_cast<size_t>(dv_ - filled) * sizeof(float));
        }
        add_products(p, v_, dv_, to - j);
    }

    // O += P V for `keys` rows of V, `step` elements apart.
    template <class Element>
    void add_products(const float* p, const Element* v, int64_t step, int64_t keys) {
        float* const o = o_of(parts_);
        const int64_t row_step = part_floats(p_);
        for (int64_t c = 0; c < dv_; c += kPanel)
            product<Fp32Math>(
                p, kScores, 1, v + c, step, count_, keys,
                [=](int64_t n, int half) { return load(o + n * row_step + c + half * kLanes); },
                [=](int64_t n, Vec o0, Vec o1) {
                    store(o + n * row_step + c, o0);
                    store(o + n * row_step + c + kLanes, o1);
                });
    }

    // Adds a split's m, l and O to those of the splits before it.
    void fold(float* sum, float* part) const {
        const float m = m_of(part) > m_of(sum) ? m_of(part) : m_of(sum);
        const float before = exp2(broadcast((m_of(sum) - m) * kLog2e))[0];
        const float now = exp2(broadcast((m_of(part) - m) * kLog2e))[0];
        m_of(sum) = m;
        l_of(sum) = l_of(sum) * before + l_of(part) * now;
        for (int64_t c = kPanel; c < part_floats(p_); c += kLanes)
            store(sum + c, load(sum + c) * before + load(part + c) * now);
    }

    // Lines 12 to 15: O = O / l, LSE = m + log l.
    void finish(Row& row) const {
        const float l = l_of(row.sum);
        double lse = lse_of(m_of(row.sum), 1.0, l);
        float factor = l == 0.0f ? 0.0f : (row.head.drops ? row.head.dropout.scale() : 1.0f) / l;
        if (row.head.sink > -__builtin_inff()) factor *= with_sink(lse, static_cast<double>(row.head.sink));
        float* const o = o_of(row.sum);
        for (int64_t c = 0; c < dv_; c += kLanes) store(o + c, load(o + c) * factor);
        store_row(row.head.out.dtype, o, p_.head_dim_v, row.head.out.at(row.i));
        if (!row.head.lse) return;
        const float rounded_lse = static_cast<float>(lse);
        memcpy(row.head.lse.at(row.i), &rounded_lse, sizeof rounded_lse);
    }

    const Problem& p_;
    const Operands& x_;
    const cpu::DecodeState& state_;
    Arena arena_;
    int64_t d_, words_, dv_;  // columns, of Q in words of Math, of O in whole panels
    Row* rows_;
    int64_t count_ = 0;  // of rows that have been started
    int64_t end_ = 0;    // of the keys that are walked
    float *parts_, *sums_;
    typename Math::Scalar* q_;  // (row, word)
    typename Math::Scalar* k_;  // K^T of a tile
    float* s_;                  // S, then P, of one block of keys: kScores from row to row
    float* v_;                  // V of a tile, widened
    float* line_;               // of a bias or mask, and rows on their way into a tile
    uint8_t* visible_;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
