// forward.h: FlashAttention-2's forward pass (arXiv 2307.08691, Algorithm 1) for one block of queries of one head.
// run() is one turn of the outer loop, walk() is the inner loop, and process_block() is lines 8 to 10. The block's Br
// queries lie in panels of kPanel, and all panels share a block of Bc keys while it is in cache. All tiles are
// transposed, S^T[key][query], so that softmax runs along lanes and needs no horizontal reduction. Blocks of keys start
// at multiples of Bc whatever the mask is, and a hidden key adds exactly nothing, so a row's bits depend on its own
// problem only.
#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/dropout.h"
#include "cpu/kernels/key_blocks.h"
#include "cpu/kernels/moves.h"
#include "cpu/kernels/row_end.h"
#include "cpu/kernels/scores.h"
#include "cpu/kernels/tile_choice.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class Forward {
    using Scalar = typename Math::Scalar;
    static constexpr bool kTiles = Math::kTiles;
    static constexpr int64_t Bc = kForwardKeys;
    static constexpr int64_t kRow = Math::kParts * kPanel;  // scalars from row to row of Q^T and of P^T in pairs
    static constexpr int64_t kLinesAStep = 16;  // of rows of Q and O: all of a panel's while it meets one block of keys

    // m, l and O of one panel, and its Q^T.
    struct Panel {
        int64_t i0;
        int64_t count;
        Scalar* q;    // Q^T [d / kPack][kRow]
        float* o;     // O^T [dv][kPanel], not yet divided by l
        float* m;     // the running maximum; in the pipeline another number in its place, in units of log2
        float* l;     // running sum of e^(s - m)
        float* most;  // pipeline: the largest l that a block may have with this m; infinite if m is the running maximum
        bool again;   // the panel is to be walked a second time
    };

public:
    Forward(const Problem& problem, const Head& head, cpu::HeldKeys* held, std::byte* scratch)
        : head_(head),
          d_(problem.head_dim),
          dv_(problem.head_dim_v),
          pipelined_(kTiles && !head.modified() && !head.functions.mask && !head.blocks && !head.drops),
          together_(keys_together(problem)),
          arena_(scratch),
          blocks_(arena_, together_, Bc, !kTiles, d_, dv_, held) {
        lay_out(problem.functions);
    }

    // Rows of a block of queries. The more there are, the fewer times K and V are copied; but Q and O of more than
    // kMostElements leave the level-2 cache, which costs more than reading K and V again where they lie.
    static int64_t most_rows(const Problem& problem, const KeyRows& k, const KeyRows& v) {
        const int64_t d = problem.head_dim, dv = problem.head_dim_v;
        int64_t panels = KeyBlocks<Math>::in_place(k, v, d, dv) ? kFewPanels : kMaxPanels;
        while (panels > kFewPanels && panels * kPanel * (d + dv) > kMostElements) panels /= 2;
        return panels * kPanel;
    }

    static std::size_t scratch_bytes(const Problem& problem, int64_t rows) {
        const Head none{};
        Forward layout(problem, none, nullptr, nullptr);
        for (int64_t i = 0; i < rows; i += kPanel) layout.take_panel(i, kPanel);
        return static_cast<std::size_t>(layout.arena_.used(nullptr));
    }

    // Line 3: one turn of the outer loop, for the block of queries [first, end).
    void run(int64_t first, int64_t end) {
        const int64_t panels = (end - first + kPanel - 1) / kPanel;
        Panel panel[kMaxPanels];
        for (int64_t n = 0; n < panels; ++n) {
            panel[n] = take_panel(first + n * kPanel, lesser(end - first - n * kPanel, kPanel));
            if constexpr (kTiles)
                for (int half = 0; half < 2; ++half) store(panel[n].most + half * kLanes, broadcast(kMostSum));
        }
        walk(panel, panels, first, end);
        int64_t again = 0;
        for (int64_t n = 0; n < panels; ++n)
            if (panel[n].again) panel[again++] = panel[n];
        if (again > 0) walk(panel, again, first, end);
    }

private:
    static constexpr int64_t kFewPanels = 8, kMaxPanels = kTiles ? 64 : 32;
    static constexpr int64_t kMostElements = (kTiles ? 1024 : 512) * 256;
    static constexpr int64_t kBytesTogether = 1 << 20, kBytesOfAHead = 5 << 18;

    // Lines 6 and 7 for panels of the rows [first, end): all keys that any of these rows sees, in pieces that are
    // copied together.
    void walk(Panel* panel, int64_t panels, int64_t first, int64_t end) {
        const Head& head = head_;
        const int64_t j_end = head.end_key(end - 1);
        const int64_t j_first = head.first_key(first);
        // The first piece from `j0` on of which the mask function shows something.
        const auto shown_from = [&](int64_t j0) {
            while (j0 < j_end && head.shown(first, end, greater(j0, j_first), lesser(j0 + together_, j_end)) ==
                                     functions::Visible::none)
                j0 += together_;
            return j0;
        };
        const int64_t j_start = shown_from(j_first / together_ * together_);
        if (j_first >= j_end || j_start >= j_end)
            for (int64_t n = 0; n < panels; ++n) {
                start(panel[n]);
                finish(panel[n]);
            }
        for (int64_t j0 = j_start, next; j0 < j_end; j0 = next) {
            next = shown_from(j0 + together_);
            const int64_t first_key = greater(j0, j_first);
            const int64_t end_key = lesser(j0 + together_, j_end);
            const int64_t hidden = (first_key - j0) % Math::kStep;
            blocks_.load(head, first_key - hidden, end_key, hidden);
            // Panels that see none of these keys have no products between which the next block could be brought.
            functions::Visible shown[kMaxPanels];
            int64_t seeing = 0;
            for (int64_t n = 0; n < panels; ++n) {
                shown[n] = shown_to(panel[n], seen_of(panel[n], first_key, end_key));
                seeing += shown[n] != functions::Visible::none;
            }
            blocks_.expect(head, lesser(next, j_end), lesser(next + together_, j_end), greater(seeing, 1));
            late_v_ = head.hides() && !all_finite(head.v, first_key, end_key, dv_);
            for (int64_t n = 0; n < panels; ++n) {
                const int64_t i0 = panel[n].i0, i1 = i0 + panel[n].count;
                if (j0 == j_start) {
                    start(panel[n]);
                    q_ahead_ = Prefetch(head.q, i1, lesser(i1 + kPanel, end), d_);
                }
                if (next >= j_end) out_ahead_ = Prefetch(head.out, i0, i1, dv_);
                if (shown[n] != functions::Visible::none) {
                    process_blocks(panel[n], j0, seen_of(panel[n], first_key, end_key), shown[n]);
                    blocks_.advance(head);
                }
                if (next >= j_end) finish(panel[n]);
            }
        }
    }

    // What the band shows a panel of the keys [first, end), and what the mask function and lists show of that.
    struct Seen {
        int64_t from, to;
    };
    Seen seen_of(const Panel& panel, int64_t first, int64_t end) const {
        return {greater(first, head_.first_key(panel.i0)), lesser(end, head_.end_key(panel.i0 + panel.count - 1))};
    }
    functions::Visible shown_to(const Panel& panel, Seen keys) const {
        return head_.shown(panel.i0, panel.i0 + panel.count, keys.from, keys.to);
    }

    // Lines 4 and 5: load Q; O = 0, l = 0, m = "minus infinity".
    void start(Panel& panel) {
        if constexpr (kCounted) count_load(Moved::q, panel.count * d_, head_.q.bytes);
        load_packed_panel<Math>(head_.q, panel.i0, panel.count, d_, head_.query_factor(), rows_, panel.q);
        memset(panel.o, 0, static_cast<size_t>(rows_of_o() * kPanel) * sizeof(float));
        for (int half = 0; half < kPanel; half += kLanes) {
            store(panel.m + half, broadcast(least_maximum()));
            store(panel.l + half, Vec{});
        }
    }

    // Lines 8 to 10 for one panel and the keys that it sees of those that were copied together, which start at `j0`.
    // They are one block, but several with tiles.
    void process_blocks(Panel& panel, int64_t j0, Seen keys, functions::Visible shown) requires(!kTiles) {
        process_block(panel, j0, keys.from, keys.to, shown);
    }
    void process_blocks(Panel& panel, int64_t j0, Seen keys, functions::Visible) requires(kTiles) {
        const int64_t from = keys.from, to = keys.to;
        if (pipelined_) {
            if constexpr (Math::kParts == 1)
                if (squares_win(d_, dv_)) return pipeline<true>(panel, j0, from, to);
            return pipeline<false>(panel, j0, from, to);
        }
        for (int64_t j = j0 + (from - j0) / Bc * Bc; j < to; j += Bc) {
            const Seen block{greater(j, from), lesser(j + Bc, to)};
            const functions::Visible shown = shown_to(panel, block);
            if (shown != functions::Visible::none) process_block(panel, j, block.from, block.to, shown);
        }
    }

    // Lines 8 to 10 for one panel and the keys [from, to) of the block that starts at `j0`.
    void process_block(Panel& panel, int64_t j0, int64_t from, int64_t to, functions::Visible shown) {
        from -= (from - j0) % Math::kStep;  // steps of keys start at the same places in every panel
        const int64_t keys = to - from;
        const bool covered = head_.covers(panel.i0, panel.i0 + panel.count, from, to);
        const bool plain = !head_.modified() && covered && shown == functions::Visible::all;
        const ScoreTile tile{s_, panel.i0, panel.count, from, to, shown};
        const bool some_hidden = head_.hides_anywhere() || shown == functions::Visible::some || !covered;
        Vec block_max[2];
        bool all_visible = true;
        scores(panel, from, to, block_max);  // line 8: S = Q K^T
        if (!plain) {
            if (head_.modified()) scale_tile(tile, head_.score_factor());
            all_visible = modify_scores(head_, tile, nullptr, DerivativeBy::product,
                                        late_v_ && some_hidden ? visible_ : nullptr, {tile_, rows_, functions_});
            take_maximum(keys, block_max);
        }

        Vec alpha[2];
        softmax(panel, tile, block_max, alpha);  // line 9: m, P and l

        // line 10: O = diag(alpha) O + P V
        if (late_v_) {
            // a key that scores hide from the whole panel must read as zero in V
            const uint8_t* seen = all_visible ? nullptr : visible_;
            accumulate(panel, keys, columns_operand<Math>(head_.v, from, to, dv_, seen, blocks_.spare_v()), alpha);
        } else {
            accumulate(panel, keys, blocks_.v(from), alpha);
        }
    }

    // S^T = K Q^T, with the maximum of each query.
    void scores(const Panel& panel, int64_t from, int64_t to, Vec (&block_max)[2]) requires(kTiles) {
        scores(panel, from, to);
        take_maximum(to - from, block_max);
    }

    // The same, with the maximum taken while S is still in registers.
    void scores(const Panel& panel, int64_t from, int64_t to, Vec (&block_max)[2]) requires(!kTiles) {
        const Operand2d<Math> k = blocks_.k(from);
        Vec m0 = broadcast(-__builtin_inff()), m1 = m0;
        dot_products<Math>(
            k.data, k.row, panel.q, to - from, steps_of<Math>(d_),
            [&](int64_t j, Vec s0, Vec s1) {
                m0 = max(s0, m0);
                m1 = max(s1, m1);
                store(s_ + j * kPanel, s0);
                store(s_ + j * kPanel + kLanes, s1);
            },
            [this] { look_ahead(); });
        block_max[0] = m0;
        block_max[1] = m1;
    }

    // m_new = max(m, rowmax(S)); P = e^(S - m_new); alpha = e^(m - m_new); l = alpha l + rowsum(P).
    void softmax(Panel& panel, const ScoreTile& tile, const Vec (&block_max)[2], Vec (&alpha)[2]) {
        const float unit = head_.score_unit();
        const int64_t keys = tile.j1 - tile.j0;
        Vec m[2];
        for (int half = 0; half < 2; ++half) {
            const Vec old = load(panel.m + half * kLanes);
            m[half] = max(block_max[half] * unit, old);
            alpha[half] = exp2((old - m[half]) * kLog2e);
            store(panel.m + half * kLanes, m[half]);
        }
        // l is a sum of up to millions of terms that may all be alike and then round the same way: eight at a time, and
        // these with what each addition leaves out (Fast2Sum). The eights start at multiples of 8, not at the first key
        // that this panel happens to see.
        Vec sum[2] = {}, left_out[2] = {};
        for (int64_t j = 0; j < keys;) {
            const int64_t eight = lesser(keys, j + 8 - (tile.j0 + j) % 8);
            Vec l[2] = {};
            const auto probability = [&](int64_t row, int half) {
                if (row >= keys) return Vec{};
                const Vec p = exp2((rounded(load(s_ + row * kPanel + half * kLanes) * unit) - m[half]) * kLog2e);
                l[half] += p;
                return p;
            };
            for (; j < eight; j += Math::kPack)
                for (int half = 0; half < 2; ++half) {
                    const Vec p = probability(j, half);
                    if constexpr (Math::kPack == 1) {
                        store(s_ + j * kPanel + half * kLanes, p);
                    } else {
                        const Vec next = probability(j + 1, half);
                        Math::store_pair(p_ + j / 2 * kRow + half * kLanes, p, next);
                        if (head_.drops) {
                            store(s_ + j * kPanel + half * kLanes, p);
                            store(s_ + (j + 1) * kPanel + half * kLanes, next);
                        }
                    }
                }
            for (int half = 0; half < 2; ++half) {
                const Vec before = sum[half];
                sum[half] = before + l[half];
                left_out[half] += l[half] - (sum[half] - before);
            }
        }
        if constexpr (kTiles) {
            // what is missing to a whole step
            const int64_t whole = round_up(keys, Math::kPack);
            memset(p_ + whole / Math::kPack * kRow, 0,
                   static_cast<size_t>((round_up(keys, Math::kStep) - whole) / Math::kPack * kRow) * sizeof(Scalar));
        }
        if (head_.drops) drop(tile);
        for (int half = 0; half < 2; ++half) {
            float* l = panel.l + half * kLanes;
            store(l, load(l) * alpha[half] + (sum[half] + left_out[half]));
        }
    }

    // Takes dropped probabilities out of P; l keeps them.
    void drop(const ScoreTile& tile) {
        const int64_t keys = tile.j1 - tile.j0;
        dropout_keep(head_, tile, tile_);
        const auto kept = [&](int64_t j, int half) {
            const int64_t n = j * kPanel + half * kLanes;
            return j < keys ? load(s_ + n) * load(tile_ + n) : Vec{};
        };
        for (int64_t j = 0; j < keys; j += Math::kPack)
            for (int half = 0; half < 2; ++half) {
                if constexpr (Math::kPack == 1) {
                    store(s_ + j * kPanel + half * kLanes, kept(j, half));
                } else {
                    const Vec even = kept(j, half);
                    Math::store_pair(p_ + j / 2 * kRow + half * kLanes, even, kept(j + 1, half));
                }
            }
    }

    // O^T = alpha O^T + V^T P^T
    void accumulate(Panel& panel, int64_t keys, const Operand2d<Math>& v, const Vec (&alpha)[2]) requires(kTiles) {
        rescale(panel, alpha);
        tile_product<true, Math::kSums>(v.data, Math::column_tiles(dv_), p_, kPanel, dv_, steps_of<Math>(keys), panel.o,
                                        kPanel);
    }

    // The same, with O multiplied by alpha where the product loads it.
    void accumulate(Panel& panel, int64_t keys, const Operand2d<Math>& v, const Vec (&alpha)[2]) requires(!kTiles) {
        const Vec a0 = alpha[0], a1 = alpha[1];
        float* o = panel.o;
        const Scalar* p;
        if constexpr (Math::kPack == 1) {
            p = s_;
        } else {
            p = p_;
        }
        product<Math>(
            v.data, v.row, v.step, p, kPanel, dv_, steps_of<Math>(keys),
            [=](int64_t c, int half) { return load(o + c * kPanel + half * kLanes) * (half == 0 ? a0 : a1); },
            [=](int64_t c, Vec o0, Vec o1) {
                store(o + c * kPanel, o0);
                store(o + c * kPanel + kLanes, o1);
            });
    }

    // Lines 12 to 15: O = O / l, the only division; LSE = m + log l. A query that saw no key has l = 0.
    void finish(Panel& panel) {
        if constexpr (kTiles) {
            panel.again = pipelined_ && !panel.again && overflowed(panel);
            if (panel.again) return;
        }
        alignas(64) float factor[kPanel];
        const float kept = (head_.drops ? head_.dropout.scale() : 1.0f) * head_.v_scale;
        for (int64_t n = 0; n < kPanel; ++n) factor[n] = panel.l[n] == 0.0f ? 0.0f : kept / panel.l[n];
        const bool sinks = head_.sink > -__builtin_inff();
        double lse[kPanel];
        if (sinks || head_.lse)
            for (int64_t n = 0; n < panel.count; ++n) lse[n] = lse_of(panel.m[n], unit_of_m(), panel.l[n]);
        if (sinks)
            for (int64_t n = 0; n < panel.count; ++n) factor[n] *= with_sink(lse[n], static_cast<double>(head_.sink));
        if constexpr (kCounted) count_store(Moved::out, panel.count * dv_, head_.out.bytes);
        store_panel(panel.o, dv_, factor, rows_, head_.out, panel.i0, panel.count);
        if (!head_.lse) return;
        if constexpr (kCounted) count_store(Moved::lse, panel.count, head_.lse.bytes);
        for (int64_t n = 0; n < panel.count; ++n) {
            const float rounded_lse = static_cast<float>(lse[n]);
            memcpy(head_.lse.at(panel.i0 + n), &rounded_lse, sizeof rounded_lse);
        }
    }

    // Prefetches a few lines between the tiles of a product.
    void look_ahead() {
        blocks_.step();
        q_ahead_.step(kLinesAStep);
        out_ahead_.step(kLinesAStep);
    }

    // The pipeline's P = 2^(exponent_factor * s - m), m in units of log2: one fused operation makes an exponent, and
    // what that leaves of a maximum does not show in 16 bits. Never infinite, which times 0 would be NaN.
    float exponent_factor() const {
        const double factor = static_cast<double>(head_.score_unit()) * kLog2eExact;
        return factor < __FLT_MAX__ ? static_cast<float>(factor) : __FLT_MAX__;
    }
    float least_maximum() const { return pipelined_ ? kLeastScore * kLog2e : kLeastScore; }
    // What m's 1 is as a score: in the pipeline by the factor as it was rounded, else lse and the scores would drift
    // apart with their size.
    double unit_of_m() const {
        return pipelined_ ? static_cast<double>(head_.score_unit()) / static_cast<double>(exponent_factor()) : 1.0;
    }

    // O^T = diag(alpha) O^T
    void rescale(Panel& panel, const Vec (&alpha)[2]) {
        if (all_one(alpha[0]) && all_one(alpha[1])) return;
        for (int64_t n = 0; n < dv_ * kPanel; n += kPanel)
            for (int half = 0; half < 2; ++half) {
                float* o = panel.o + n + half * kLanes;
                store(o, load(o) * alpha[half]);
            }
    }

    void take_maximum(int64_t keys, Vec (&block_max)[2]) {
        block_max[0] = block_max[1] = broadcast(-__builtin_inff());
        for (int64_t j = 0; j < keys; ++j)
            for (int half = 0; half < 2; ++half)
                block_max[half] = max(load(s_ + j * kPanel + half * kLanes), block_max[half]);
    }

    // The first `most` of every query. P and l may be as large as fp32 holds, since P need not be 1 at a row's maximum;
    // scores of ordinary data never come near this. Where large V carry O past fp32's range, overflowed() sees it.
    static constexpr float kMostSum = 0x1p96f;

    // The pipeline of tile_pipeline.h, which is process_block() for all blocks of one panel.
    template <bool kSquares>
    void pipeline(Panel& panel, int64_t j0, int64_t from, int64_t to);
    IntVec wants_maximum(const Panel& panel, int half);
    [[gnu::noinline]] void repeat(Panel& panel, int64_t from, int64_t to, int64_t after, const IntVec (&above)[2],
                                  Vec (&sum)[2], Vec (&alpha)[2]);
    void finish_scores(Panel& panel, int64_t from, int64_t to);
    void raise_maximum(Panel& panel, int64_t keys, const IntVec (&due)[2], Vec (&alpha)[2]);
    bool overflowed(Panel& panel);
    template <bool kSquares, class Softmax>
    [[gnu::always_inline]] void scores(const Panel& panel, int64_t from, int64_t to, Softmax& other);
    template <bool kSquares, class Softmax>
    [[gnu::always_inline]] void add_products(Panel& panel, int64_t from, int64_t to, const Scalar* p, Softmax& other);
    [[gnu::noinline]] void scores(const Panel& panel, int64_t from, int64_t to);

    // Keys that are copied before panels walk them. Tiles are multiplied so fast that a panel's O has to stay in the
    // level-1 cache over many blocks of keys; these then fill about half of a level-2 cache. All keys of a head may
    // take a little more: they serve its next block too.
    static int64_t keys_together(const Problem& problem) {
        if (!kTiles) return Bc;
        const int64_t bytes = (row_step<Math>(problem.head_dim) + column_step<Math>(problem.head_dim_v) / Math::kStep) *
                              static_cast<int64_t>(sizeof(Scalar));
        const int64_t all = greater(round_up(problem.seqlen_k, Bc), Bc);
        return all * bytes <= kBytesOfAHead ? all : greater(kBytesTogether / bytes / Bc, 1) * Bc;
    }

    // Rows of O^T: whole tiles, where tiles multiply.
    int64_t rows_of_o() const { return kTiles ? round_up(dv_, kLanes) : dv_; }

    void lay_out(int functions) {
        const int64_t widest = greater(greater(d_, dv_), Bc);
        s_ = arena_.take<float>((Bc + kLanes) * kPanel);
        if constexpr (Math::kPack > 1) p_ = arena_.take<Scalar>(Bc / Math::kPack * kRow);
        if constexpr (kTiles) p_before_ = arena_.take<Scalar>(Bc / Math::kPack * kRow);
        tile_ = arena_.take<float>((widest + kLanes) * kPanel);
        rows_ = arena_.take<float>(kLanes * round_up(widest, kLanes));
        visible_ = arena_.take<uint8_t>(Bc);
        functions_ = arena_.take<int64_t>(function_scratch(functions));
    }

    Panel take_panel(int64_t i0, int64_t count) {
        Panel panel{};
        panel.i0 = i0;
        panel.count = count;
        panel.q = arena_.take<Scalar>(packed_panel_size<Math>(d_));
        panel.o = arena_.take<float>(rows_of_o() * kPanel);
        panel.m = arena_.take<float>(kPanel);
        panel.l = arena_.take<float>(kPanel);
        if constexpr (kTiles) panel.most = arena_.take<float>(kPanel);
        return panel;
    }

    const Head& head_;
    int64_t d_, dv_;
    bool pipelined_;       // scores need no more than the band
    bool late_v_ = false;  // V of the current keys waits for the scores, which may hide keys where it is not finite
    int64_t together_;
    Arena arena_;
    KeyBlocks<Math> blocks_;
    Prefetch q_ahead_, out_ahead_;
    float* s_;          // S^T, then P^T in fp32
    Scalar* p_;         // P^T in pairs
    Scalar* p_before_;  // and that of the block before, of a pipeline
    float* tile_;       // a panel of bias or mask
    float* rows_;       // rows on their way into a panel
    uint8_t* visible_;
    int64_t* functions_;  // values of the user's functions
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
