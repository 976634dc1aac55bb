// decode.h: attention of few queries, as a text that grows by a token at a time has them (section 3.2 of the paper,
// with the work divided over keys instead of queries). K and V are read once for all query heads of a group. forward.h
// has queries in its lanes, of which few would be in use. Here lanes hold keys in S = Q K^T, which sums the same
// products in the same order, and columns in O = P V. Sums are in fp32, and so are products but those where Math
// multiplies pairs of bf16: of Q K^T, and on an e4m3 cache of P V, of two keys in a column.
//
// The keys of a sequence are split (shared/key_splits.h). A split has its own m, l and O, and a row folds its splits in
// their order: in one task, or from what several tasks stored, which gives the same bits. Blocks of keys start at
// multiples of Bc, and a hidden key adds exactly nothing, so a row's bits depend on its own problem only.
#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/prefetch.h"
#include "cpu/kernels/product.h"
#include "cpu/kernels/row_end.h"
#include "cpu/kernels/row_scores.h"
#include "shared/key_splits.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class Decode {
    static constexpr int64_t Bc = KeySplits::kUnit;
    static constexpr int64_t kTile = kPanel;              // keys that are widened together
    static constexpr int64_t kChain = kScoreChain<Math>;  // words that are summed in one chain
    static constexpr int64_t kRowsTogether = cpu::kDecodeRows;
    static constexpr int64_t kScores = Bc + kLanes;  // more than Bc: rows fall into different sets of the cache
    static constexpr bool kPairs = Math::kPack == 2;

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
        : p_(p), x_(x), state_(state), arena_(scratch), d_(p.head_dim), words_(width_of_q(p)), dv_(width_of_o(p)) {
        const int64_t of_a_sequence = p.heads * greater(p.seqlen_q, 1), width = round_up(greater(d_, words_), kLanes);
        const int64_t rows = p.prefix_groups > 0 ? kRowsTogether : lesser(kRowsTogether, of_a_sequence);
        rows_ = arena_.take<Row>(rows);
        parts_ = arena_.take<float>(rows * part_floats(p));
        sums_ = arena_.take<float>(rows * part_floats(p));
        q_ = arena_.take<typename Math::Scalar>(rows * words_ * Math::kParts + kLanes);
        s_ = arena_.take<float>(rows * kScores + kTile);  // more: pairs of a run are read by whole tiles
        weights_ = arena_.take<typename Math::Scalar>(rows * kWeights);
        k_ = arena_.take<typename Math::Scalar>(kChain * kPanel);
        v_ = arena_.take<float>(kTile * dv_);
        line_ = arena_.take<float>(greater(kPanel * width, kLanes * Bc));
        visible_ = arena_.take<uint8_t>(rows * Bc);
        scales_ = arena_.take<float>(Bc);
    }

    static std::size_t scratch_bytes(const Problem& p) {
        const Operands none{};
        const cpu::DecodeState state{};
        return static_cast<std::size_t>(Decode(p, none, state, nullptr).arena_.used(nullptr));
    }

    // m, l and O of a row, O in whole vectors.
    static int64_t part_floats(const Problem& p) { return kPanel + width_of_o(p); }

    // Some splits of some key heads, for all queries and heads of their groups. Where parts are not stored, these are
    // all splits of a sequence, and its rows are finished.
    void run(const cpu::KeyRange& range) {
        const int64_t group = p_.group();
        key_heads_ = range.end_kv_head - range.kv_head;
        for (int64_t kv_head = range.kv_head; kv_head < range.end_kv_head; ++kv_head)
            for (int64_t b = range.b; b < range.end_b; ++b) {
                if (queries_of(b) > state_.few) continue;
                const int64_t rows = make_head(p_, x_, b, kv_head * group).seqlen_q * group;
                for (int64_t row = 0; row < rows; ++row) {
                    if (count_ == kRowsTogether) walk(range);
                    start(b, kv_head * group + row % group, row / group);
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
    static int64_t width_of_q(const Problem& p) {
        const int64_t words = words_of<Math>(p.head_dim);
        return p.has_e4m3() ? round_up(words, Math::kE4m3Vectors * kLanes) : words;
    }
    static int64_t width_of_o(const Problem& p) {
        if constexpr (kPairs)
            if (p.has_e4m3()) return round_up(p.head_dim_v, Math::Words::kPairVectors * kLanes);
        return round_up(p.head_dim_v, kPanel);
    }

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
        row.head.scale *= row.head.q.scale_of(i);
        load_query(row.head, i, q_ + n * words_ * Math::kParts);
        clear(row.sum);
    }

    // The rows that have been started, through their splits. Those of a key head share its keys and values.
    void walk(const cpu::KeyRange& range) {
        sharing_ = count_ / key_heads_;
        const KeySplits splits = KeySplits::of(rows_[0].head.seqlen_k, {p_.num_splits});
        int64_t seen = rows_[0].head.seqlen_k, seen_end = 0;
        for (int64_t n = 0; n < count_; ++n) {
            if (rows_[n].first >= rows_[n].end) continue;
            seen = lesser(seen, rows_[n].first);
            seen_end = greater(seen_end, rows_[n].end);
        }
        for (int64_t split = range.first; split < range.end; ++split) {
            const int64_t j0 = split * splits.keys;
            const int64_t to = lesser(j0 + splits.keys, seen_end);
            // A task of all key heads is followed by the one of the next split.
            end_ = key_heads_ == p_.kv_heads ? seen_end : to;
            attend(greater(j0, seen), to);
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
        if constexpr (!kPairs) {
            load_row(head.q.dtype, head.q.at(i), d_, q);
            if (negative)
                for (int64_t c = 0; c < d_; ++c) q[c] = -q[c];
            for (int64_t c = d_; c < words_; ++c) q[c] = 0.0f;
        } else if (head.k.dtype == DType::fp8_e4m3) {
            load_query_words(head, i, negative, q);
        } else {
            q[words_ - 1] = 0;  // what is beside a last odd column
            memcpy(q, head.q.at(i), static_cast<size_t>(d_) * 2);
            if (negative)
                for (int64_t c = 0; c < words_; ++c) q[c] ^= 0x80008000u;
        }
    }

    // In the order of e4m3's words, part after part.
    void load_query_words(const Head& head, int64_t i, bool negative, typename Math::Scalar* q) const {
        constexpr int64_t kUnit = Math::kE4m3Vectors * kLanes * Math::kPack;
        const int64_t elements = words_ * Math::kPack;
        load_row(head.q.dtype, head.q.at(i), d_, line_);
        memset(line_ + d_, 0, static_cast<size_t>(elements - d_) * sizeof(float));
        for (int64_t c = 0; c < elements; c += kUnit) {
            alignas(64) float unit[kUnit];
            FLASHTILE_UNROLL
            for (int n = 0; n < kUnit; ++n) unit[n] = line_[c + Math::Words::column_of_word(n)];
            typename Math::Scalar* words = q + c / Math::kPack;
            for (int64_t n = 0; n < kUnit; n += 2 * kLanes, words += kLanes) {
                Vec first = load(unit + n), second = load(unit + n + kLanes);
                if (negative) {
                    first = -first;
                    second = -second;
                }
                store_parts(words, words_, first, second);
            }
        }
    }

    // Two vectors as words of pairs, part after part, `step` words apart.
    static void store_parts(typename Math::Scalar* words, int64_t step, Vec first, Vec second) {
        for (int part = 0; part < Math::kParts; ++part, words += step) {
            Math::store_row(words, first, second);
            if (part + 1 == Math::kParts) return;
            const auto* const halves = reinterpret_cast<const uint16_t*>(words);
            first = first - widen_bf16(halves);
            second = second - widen_bf16(halves + kLanes);
        }
    }

    // Lines 6 to 11 of Algorithm 1 for the keys [from, to) of one split.
    void attend(int64_t from, int64_t to) {
        for (int64_t n = 0; n < count_; ++n) clear(rows_[n].part);
        for (int64_t j0 = from / Bc * Bc; j0 < to; j0 += Bc) {
            const int64_t first = greater(from, j0), j1 = lesser(j0 + Bc, to);
            const int64_t first_tile = first / kTile * kTile, lanes = round_up(j1 - first_tile, kTile);
            const RowBlock block{first_tile, lanes, j1};
            const int64_t at = first_tile - j0;
            ask_for_pages(rows_[0].head.k, x_.k, d_, j0);
            for (int64_t j = first_tile; j < j1; j += kTile)
                for (int64_t head = 0; head < key_heads_; ++head) scores(head, j, lesser(to, j + kTile), s_ + (j - j0));
            if (rows_[0].head.k.has_scales())
                scale_keys([](const Head& head) -> const KeyRows& { return head.k; }, block, at);
            for (int64_t n = 0; n < count_; ++n)
                modify_row(rows_[n].head, rows_[n].i, block, rows_[n].first, rows_[n].end, s_ + n * kScores + at,
                           line_);
            const bool asks = rows_[0].head.hides();
            if (asks) find_visible(at, lanes);
            for (int64_t n = 0; n < count_; ++n) softmax(rows_[n], block, s_ + n * kScores + at);
            if (!kPairs && rows_[0].head.v.has_scales())
                scale_keys([](const Head& head) -> const KeyRows& { return head.v; }, block, at);
            ask_for_pages(rows_[0].head.v, x_.v, dv_, j0);
            for (int64_t j = first_tile; j < j1; j += kTile)
                for (int64_t head = 0; head < key_heads_; ++head)
                    accumulate(head, j, greater(first, j), lesser(to, j + kTile), s_ + (j - j0),
                               asks ? visible_ + head * Bc + (j - j0) : nullptr);
        }
    }

    // S or P of a block's keys times the scales of K or V. What is 0 stays so: a hidden key's scale may be anything.
    template <class RowsOf>
    void scale_keys(RowsOf rows_of, const RowBlock& block, int64_t at) {
        for (int64_t head = 0; head < key_heads_; ++head) {
            const KeyRows& keys = rows_of(rows_[head * sharing_].head);
            for (int64_t j = block.j0, end; j < block.j1; j = end) {
                end = keys.end_of_scale(j, block.j1);
                const float scale = keys.scale_of(j);
                for (int64_t n = j; n < end; ++n) scales_[n - block.j0] = scale;
            }
            for (int64_t n = block.j1 - block.j0; n < block.lanes; ++n) scales_[n] = 1.0f;
            for (int64_t row = head * sharing_; row < (head + 1) * sharing_; ++row) {
                float* const s = s_ + row * kScores + at;
                for (int64_t n = 0; n < block.lanes; n += kLanes) {
                    const Vec x = load(s + n);
                    store(s + n, x == 0.0f ? x : x * load(scales_ + n));
                }
            }
        }
    }

    // The pages of the block after the one at j0. Inlined always, as what it calls.
    [[gnu::always_inline]] void ask_for_pages(const KeyRows& first, const Operand& x, int64_t cols, int64_t j0) const {
        const int64_t columns = (key_heads_ - 1) * x.stride_head + cols;  // of all heads
        prefetch_pages(first, lesser(j0 + Bc, end_), lesser(j0 + 2 * Bc, end_), columns * first.bytes);
    }

    // A tile of K or V is read head by head, and its rows lie far apart, where the hardware does not look ahead by
    // itself. So while a head's tile at `j` is read, its share of the next tile's rows is asked for, with all heads, in
    // the order in which they lie in memory; and step by step, since a burst would have to wait for itself.
    PrefetchHeads ahead_of(const KeyRows& first, const Operand& x, int64_t cols, int64_t head, int64_t j) const {
        const int64_t next = j + kTile, end = lesser(next + kTile * (head + 1) / key_heads_, end_);
        return {first, next + kTile * head / key_heads_, end, key_heads_, x.stride_head, cols};
    }

    // Line 8 for the keys [j, to) of one tile of a key head, of those that the task has: S = Q K^T, which stands at s,
    // kScores from row to row. The sums are those of dot_products(), whose chains are multiplied one after the other,
    // so that bringing K into a panel and multiplying take turns often and memory is asked evenly.
    void scores(int64_t head, int64_t j, int64_t to, float* s) {
        ahead_ = ahead_of(rows_[0].head.k, x_.k, d_, head, j);
        const int64_t row = head * sharing_;
        s += row * kScores;
        const float* source[kPanel];
        find_words(rows_[row].head.k, j, to, source);
        if (rows_[row].head.k.dtype == DType::fp8_e4m3) return widened_scores(source, row, s);
        for (int64_t w0 = 0; w0 < words_; w0 += kChain) {
            const int64_t words = lesser(kChain, words_ - w0);
            for (int64_t w = 0; w < words; w += kLanes)
                for (int64_t half = 0; half < kPanel; half += kLanes) {
                    Vec square[kLanes];
                    FLASHTILE_UNROLL
                    for (int n = 0; n < kLanes; ++n) square[n] = load(source[half + n] + w0 + w);
                    transpose(square);
                    FLASHTILE_UNROLL
                    for (int n = 0; n < kLanes; ++n)
                        store(reinterpret_cast<float*>(k_ + (w + n) * kPanel + half), square[n]);
                    for (int n = 0; n < kLanes; n += 2) ahead_.step();
                }
            product<Math>(
                q_ + row * words_ + w0, words_, 1, k_, kPanel, sharing_, words, [](int64_t, int) { return Vec{}; },
                [=](int64_t n, Vec s0, Vec s1) {
                    float* const sums = s + n * kScores;
                    store(sums, w0 == 0 ? s0 : load(sums) + s0);
                    store(sums + kLanes, w0 == 0 ? s1 : load(sums + kLanes) + s1);
                });
        }
    }

    // The same of e4m3 keys that are widened in registers, each once for some rows. Lanes hold columns, whose sums are
    // added up for as many keys and rows together as a vector has lanes. A score is the same sum whichever these are.
    void widened_scores(const float* const (&source)[kPanel], int64_t row, float* s) {
        int64_t rows = sharing_;
        const typename Math::Scalar* q = q_ + row * words_ * Math::kParts;
        const auto tile = [&]<int R>() {
            for (; rows >= R; rows -= R, q += R * words_ * Math::kParts, s += R * kScores)
                widened_tile<R>(source, q, s);
        };
        if constexpr (kLanes >= 8) tile.template operator()<8>();
        tile.template operator()<4>();
        tile.template operator()<2>();
        tile.template operator()<1>();
    }

    template <int R>
    void widened_tile(const float* const (&source)[kPanel], const typename Math::Scalar* q, float* s) {
        constexpr int kKeys = kLanes / R, kVectors = Math::kE4m3Vectors, kParts = Math::kParts;
        constexpr float kUnit = Math::kE4m3;
        for (int64_t key = 0; key < kPanel; key += kKeys) {
            Vec sums[R][kKeys];  // in registers, which what is handed on to a function would not be
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r)
                for (int n = 0; n < kKeys; ++n) sums[r][n] = Vec{};
            for (int64_t w = 0; w < words_; w += kVectors * kLanes) {
                typename Math::Operand of_q[R][kParts][kVectors];
                FLASHTILE_UNROLL
                for (int r = 0; r < R; ++r)
                    for (int part = 0; part < kParts; ++part)
                        for (int v = 0; v < kVectors; ++v)
                            of_q[r][part][v] = Math::load_panel(q + (r * kParts + part) * words_ + w + v * kLanes);
                FLASHTILE_UNROLL
                for (int n = 0; n < kKeys; ++n) {
                    typename Math::Operand of_k[kVectors];
                    Math::load_e4m3(reinterpret_cast<const uint8_t*>(source[key + n]) + w * Math::kPack, of_k);
                    FLASHTILE_UNROLL
                    for (int r = 0; r < R; ++r)
                        for (int part = 0; part < kParts; ++part)
                            for (int v = 0; v < kVectors; ++v)
                                sums[r][n] = Math::multiply_add(of_q[r][part][v], of_k[v], sums[r][n]);
                }
                FLASHTILE_UNROLL
                for (int n = 0; n < (kKeys + 1) / 2; ++n) ahead_.step();
            }
            Vec all[kLanes];
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r)
                for (int n = 0; n < kKeys; ++n) all[r * kKeys + n] = sums[r][n];
            alignas(64) float scores[kLanes];
            store(scores, sums_of(all) * kUnit);
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r) memcpy(s + r * kScores + key, scores + r * kKeys, kKeys * sizeof(float));
        }
    }

    // Where the words of the rows from `key` on lie, or their e4m3 elements: in place, or copied and filled up with
    // zeros.
    void find_words(const KeyRows& k, int64_t key, int64_t to, const float* (&source)[kPanel]) const {
        constexpr int64_t kBytes = 4 / Math::kPack;  // of an element in a word
        const bool e4m3 = k.dtype == DType::fp8_e4m3;
        const int64_t width = round_up(words_, kLanes), filled = e4m3 ? words_ * Math::kPack : width * 4;
        const bool in_place = e4m3 ? d_ == filled : d_ * kBytes == filled && k.bytes == kBytes;
        int64_t there = 0;  // rows that are read where they lie, run after run
        for (const int64_t rows = in_place ? to - key : 0; there < rows;) {
            const char* from = k.at(key + there);
            for (const int64_t end = k.end_of_run(key + there, to) - key; there < end; from += k.stride_row * k.bytes)
                source[there++] = reinterpret_cast<const float*>(from);
        }
        for (int64_t n = there; n < kPanel; ++n) {
            float* const row = line_ + n * width;
            source[n] = row;
            const char* const from = key + n < to ? k.at(key + n) : nullptr;
            memset(row, 0, static_cast<size_t>(filled));
            if (from == nullptr) continue;
            if (e4m3 || kPairs)
                memcpy(row, from, static_cast<size_t>(d_ * k.bytes));
            else
                load_row(k.dtype, from, d_, row);
        }
    }

    // Keys that a mask or bias hides from all rows of a key head: their V may be anything.
    void find_visible(int64_t at, int64_t lanes) {
        for (int64_t head = 0; head < key_heads_; ++head)
            for (int64_t n = at; n < at + lanes; ++n) {
                uint8_t& visible = visible_[head * Bc + n];
                visible = 0;
                for (int64_t row = head * sharing_; row < (head + 1) * sharing_; ++row)
                    visible |= !(s_[row * kScores + n] <= kLeastScore);
            }
    }

    // Line 9: m, P and l; and of line 10 the factor of O.
    void softmax(Row& row, const RowBlock& block, float* s) {
        const float unit = row.head.score_unit();
        Vec largest = broadcast(-__builtin_inff());
        for (int64_t n = 0; n < block.lanes; n += kLanes) largest = max(load(s + n), largest);
        float* const part = row.part;
        const float m = largest_lane(max(largest * unit, broadcast(m_of(part))));  // NaN is none
        Vec sum{};
        for (int64_t n = 0; n < block.lanes; n += kLanes) {
            const Vec p = exp2((rounded(load(s + n) * unit) - m) * kLog2e);
            store(s + n, p);
            sum += p;
        }
        const float l = sum_of_lanes(sum);
        if (row.head.drops) drop_row(row.head, row.i, block, s);
        const float alpha = exp2(broadcast((m_of(part) - m) * kLog2e))[0];
        m_of(part) = m;
        l_of(part) = l_of(part) * alpha + l;
        if (alpha == 1.0f) return;
        float* const o = o_of(part);
        for (int64_t c = 0; c < dv_; c += kLanes) store(o + c, load(o + c) * alpha);
    }

    // Line 10 for a tile of a key head's keys at j, of which [from, to) are there: O += P V, with P at p.
    void accumulate(int64_t head, int64_t j, int64_t from, int64_t to, const float* p, const uint8_t* visible) {
        const KeyRows& v = rows_[head * sharing_].head.v;
        const int64_t cols = p_.head_dim_v;
        ahead_ = ahead_of(rows_[0].head.v, x_.v, cols, head, j);
        p += head * sharing_ * kScores;
        float* const o = o_of(rows_[head * sharing_].part);
        if constexpr (kPairs)
            if (v.dtype == DType::fp8_e4m3) return accumulate_pairs(v, j, from, to, p, visible, o);
        // Whole vectors of rows are read in place, page by page.
        const bool all_shown = visible == nullptr && from == j;
        if (cols == dv_ && all_shown && v.has_long_runs() && v.dtype != DType::fp16) {
            for (int64_t key = j, end; key < to; key = end) {
                end = v.end_of_run(key, to);
                if (v.dtype == DType::fp32)
                    add_products(p + (key - j), reinterpret_cast<const float*>(v.at(key)), v.stride_row, end - key, o);
                else if (v.dtype == DType::fp8_e4m3)
                    add_products(p + (key - j), reinterpret_cast<const E4m3*>(v.at(key)), v.stride_row, end - key, o);
                else
                    add_products(p + (key - j), reinterpret_cast<const Bf16*>(v.at(key)), v.stride_row, end - key, o);
            }
            return;
        }
        const auto gather = [&]<class Element>(Element* copies, auto copy) {
            for (int64_t key = j; key < to; ++key) {
                Element* const row = copies + (key - j) * dv_;
                const bool shown = key >= from && (visible == nullptr || visible[key - j] != 0);
                if (shown) copy(v.at(key), row);
                const int64_t filled = shown ? cols : 0;
                memset(row + filled, 0, static_cast<size_t>(dv_ - filled) * sizeof(Element));
            }
            add_products(p, copies, dv_, to - j, o);
        };
        if (v.dtype == DType::bf16)
            gather(reinterpret_cast<Bf16*>(v_), [=](const char* from_row, Bf16* row) {
                memcpy(row, from_row, static_cast<size_t>(cols) * sizeof(Bf16));
            });
        else
            gather(v_, [&](const char* from_row, float* row) {
                load_row(v.dtype, from_row, cols, row);
                for (int64_t c = 0; c < cols && v.dtype == DType::fp8_e4m3; ++c) row[c] /= kE4m3Unit;
            });
    }

    // The same of e4m3, in products of pairs of keys. Keys with one scale are a run: their products are added up
    // before they are multiplied by it. A scale that is only for hidden keys may be anything.
    void accumulate_pairs(const KeyRows& v, int64_t j, int64_t from, int64_t to, const float* p, const uint8_t* visible,
                          float* o) {
        const int64_t cols = p_.head_dim_v;
        const bool all_shown = visible == nullptr && from == j;
        const bool in_place = cols == dv_ && all_shown && v.has_long_runs();
        const auto shown = [=](int64_t key) { return key >= from && (visible == nullptr || visible[key - j] != 0); };
        auto* const copies = reinterpret_cast<uint8_t*>(v_);
        for (int64_t key = j; key < to && !in_place; ++key) {
            uint8_t* const row = copies + (key - j) * dv_;
            const int64_t filled = shown(key) ? cols : 0;
            if (filled > 0) memcpy(row, v.at(key), static_cast<size_t>(filled));
            memset(row + filled, 0, static_cast<size_t>(dv_ - filled));
        }
        for (int64_t key = j, end; key < to; key = end) {
            end = v.end_of_scale(key, to);
            if (in_place) end = v.end_of_run(key, end);
            bool any_shown = all_shown;
            for (int64_t n = key; n < end && !any_shown; ++n) any_shown = shown(n);
            if (!any_shown) continue;
            pack_weights(p + (key - j), end - key);
            const uint8_t* const rows =
                in_place ? reinterpret_cast<const uint8_t*>(v.at(key)) : copies + (key - j) * dv_;
            add_pairs(rows, in_place ? v.stride_row : dv_, end - key, v.scale_of(key), o);
        }
    }

    // P of `keys` keys of a tile, in pairs and parts, for the rows of a key head. A last odd one is beside 0.
    void pack_weights(const float* p, int64_t keys) {
        typename Math::Scalar* words = weights_;
        for (int64_t row = 0; row < sharing_; ++row, p += kScores, words += kWeights) {
            store_parts(words, kLanes, load(p), load(p + kLanes));
            if (keys % 2 == 0) continue;
            for (int64_t part = 0; part < Math::kParts; ++part)
                reinterpret_cast<uint16_t*>(words + part * kLanes)[keys] = 0;
        }
    }

    // O += scale P V for `keys` rows of V, `step` bytes apart, and the packed P.
    void add_pairs(const uint8_t* v, int64_t step, int64_t keys, float scale, float* o) {
        constexpr int kMost = 16 / Math::Words::kPairVectors;  // sums stay in registers
        int64_t rows = sharing_;
        const typename Math::Scalar* weights = weights_;
        const auto tile = [&]<int R>() {
            for (; rows >= R; rows -= R, weights += R * kWeights, o += R * part_floats(p_))
                add_pair_tile<R>(v, step, keys, weights, scale, o);
        };
        tile.template operator()<kMost>();
        if constexpr (kMost > 4) tile.template operator()<4>();
        tile.template operator()<2>();
        tile.template operator()<1>();
    }

    template <int R>
    void add_pair_tile(const uint8_t* v, int64_t step, int64_t keys, const typename Math::Scalar* weights, float scale,
                       float* o) {
        constexpr int kVectors = Math::Words::kPairVectors, kParts = Math::kParts;
        const int64_t row_step = part_floats(p_);
        for (int64_t c = 0; c < dv_; c += kVectors * kLanes) {
            Vec sums[R][kVectors];
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r)
                for (int n = 0; n < kVectors; ++n) sums[r][n] = Vec{};
            const uint8_t* row = v + c;
            for (int64_t key = 0; key < keys; key += 2, row += 2 * step) {
                typename Math::Operand x[kVectors];
                Math::load_e4m3_pairs(row, key + 1 < keys ? row + step : row, x);
                ahead_.step();
                FLASHTILE_UNROLL
                for (int r = 0; r < R; ++r)
                    for (int part = 0; part < kParts; ++part) {
                        const auto weight = Math::spread(weights + (r * kParts + part) * kLanes + key / 2);
                        FLASHTILE_UNROLL
                        for (int n = 0; n < kVectors; ++n) sums[r][n] = Math::multiply_add(weight, x[n], sums[r][n]);
                    }
            }
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r)
                for (int n = 0; n < kVectors; ++n) {
                    float* const to = o + r * row_step + c + n * kLanes;
                    store(to, sums[r][n] * scale + load(to));
                }
        }
    }

    // O += P V for `keys` rows of V, `step` elements apart.
    template <class Element>
    void add_products(const float* p, const Element* v, int64_t step, int64_t keys, float* o) {
        int64_t c = 0;
        for (; c + 2 * kPanel <= dv_; c += 2 * kPanel) add_columns<2>(p, v + c, step, keys, o + c);
        if (c < dv_) add_columns<1>(p, v + c, step, keys, o + c);
    }

    // Some panels of columns, for all rows of a key head.
    template <int kPanels, class Element>
    void add_columns(const float* p, const Element* v, int64_t step, int64_t keys, float* o) {
        int64_t rows = sharing_;
        const auto tile = [&]<int R>() {
            for (; rows >= R; rows -= R, p += R * kScores, o += R * part_floats(p_))
                add_tile<R, kPanels>(p, v, step, keys, o, rows == sharing_);
        };
        tile.template operator()<kRows / kPanels>();
        tile.template operator()<2>();
        tile.template operator()<1>();
    }

    // R rows of O, whose panels stay in registers.
    template <int R, int kPanels, class Element>
    void add_tile(const float* p, const Element* v, int64_t step, int64_t keys, float* o, bool prefetches) {
        constexpr int64_t kLines = (kPanels * kPanel * static_cast<int64_t>(sizeof(Element)) + 63) / 64;
        const int64_t row_step = part_floats(p_);
        Vec c[R][2 * kPanels];
        FLASHTILE_UNROLL
        for (int r = 0; r < R; ++r)
            for (int n = 0; n < 2 * kPanels; ++n) c[r][n] = load(o + r * row_step + n * kLanes);
        for (; keys > 0; --keys, ++p, v += step) {
            Vec x[2 * kPanels];
            FLASHTILE_UNROLL
            for (int n = 0; n < kPanels; ++n) load_values(v + n * kPanel, x[2 * n], x[2 * n + 1]);
            if (prefetches)
                for (int64_t n = 0; n < kLines; n += 2) ahead_.step();
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r) {
                const Vec weight = broadcast(p[r * kScores]);
                FLASHTILE_UNROLL
                for (int n = 0; n < 2 * kPanels; ++n) c[r][n] = weight * x[n] + c[r][n];
            }
        }
        FLASHTILE_UNROLL
        for (int r = 0; r < R; ++r)
            for (int n = 0; n < 2 * kPanels; ++n) store(o + r * row_step + n * kLanes, c[r][n]);
    }

    // A panel of columns of V. Of bf16 the even columns come first, then the odd ones, which costs less to widen than
    // the order of memory; O has that order, too, until its rows are finished.
    static void load_values(const float* v, Vec& first, Vec& second) {
        first = load(v);
        second = load(v + kLanes);
    }
    static void load_values(const Bf16* v, Vec& even, Vec& odd) {
        UintVec pairs;
        memcpy(&pairs, v, sizeof pairs);
        even = reinterpret_cast<Vec>(pairs << 16);
        odd = reinterpret_cast<Vec>(pairs & 0xFFFF0000u);
    }

    // Of e4m3 1 / kE4m3Unit of it, which O's last factor makes up for.
    static void load_values(const E4m3* v, Vec& first, Vec& second) { widen_e4m3(&v->bits, first, second); }

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
        const float unit = row.head.v.dtype == DType::fp8_e4m3 ? row.head.v_scale * Math::kE4m3 : 1.0f;
        const float kept = (row.head.drops ? row.head.dropout.scale() : 1.0f) * unit;
        float factor = l == 0.0f ? 0.0f : kept / l;
        if (row.head.sink > -__builtin_inff()) factor *= with_sink(lse, static_cast<double>(row.head.sink));
        float* const o = o_of(row.sum);
        for (int64_t c = 0; c < dv_; c += kLanes) store(o + c, load(o + c) * factor);
        if (row.head.v.dtype == DType::bf16)
            for (int64_t c = 0; c < dv_; c += kPanel) {
                const Vec even = load(o + c), odd = load(o + c + kLanes);
                store(o + c, interleave_low(even, odd));
                store(o + c + kLanes, interleave_high(even, odd));
            }
        if constexpr (kPairs)
            if (row.head.v.dtype == DType::fp8_e4m3) order_columns(o);
        store_row(row.head.out.dtype, o, p_.head_dim_v, row.head.out.at(row.i));
        if (!row.head.lse) return;
        const float rounded_lse = static_cast<float>(lse);
        memcpy(row.head.lse.at(row.i), &rounded_lse, sizeof rounded_lse);
    }

    // O of e4m3 pairs has their order.
    void order_columns(float* o) const {
        constexpr int64_t kUnit = Math::Words::kPairVectors * kLanes;
        memcpy(v_, o, static_cast<size_t>(dv_) * sizeof(float));
        for (int64_t n = 0; n < dv_; ++n) o[n / kUnit * kUnit + Math::Words::column_of_pair(n % kUnit)] = v_[n];
    }

    static constexpr int64_t kWeights = Math::kParts * kLanes;  // words of a row's P of a tile

    const Problem& p_;
    const Operands& x_;
    const cpu::DecodeState& state_;
    Arena arena_;
    int64_t d_, words_, dv_;  // columns, of Q in words of Math, of O in whole panels
    Row* rows_;
    int64_t count_ = 0;      // of rows that have been started
    int64_t key_heads_ = 1;  // that they have
    int64_t sharing_ = 0;    // rows of each
    int64_t end_ = 0;        // of the keys that memory is asked for
    float *parts_, *sums_;
    typename Math::Scalar* q_;        // (row, word)
    typename Math::Scalar* k_;        // K^T of a tile, of one chain of words
    float* s_;                        // S, then P, of one block of keys: kScores from row to row
    typename Math::Scalar* weights_;  // P of a tile in pairs, of one key head
    float* v_;                        // V of a tile, widened
    float* line_;                     // of a bias or mask, and rows on their way into a tile
    uint8_t* visible_;
    float* scales_;  // of one block of keys
    PrefetchHeads ahead_;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
