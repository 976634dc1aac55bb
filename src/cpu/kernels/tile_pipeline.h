// tile_pipeline.h: lines 8 to 10 of Algorithm 1 as a pipeline, for problems that the tile unit of AMX multiplies and
// whose scores need no more than the band. forward.h calls pipeline() instead of process_block(). While the tile unit
// computes O of the block before and S of the block after, the vector units compute P of this block (tile_softmax.h).
//
// m is not the running maximum here: the first block in which a query sees a key sets its m, and m then stays. Where a
// later block's l is above `most`, that block is computed again with its own maximum, and from there on m is the
// running maximum. At a panel's end overflowed() says whether O left fp32's range; forward.h then walks the panel again
// with the running maximum. All of this is decided for each query by itself: its neighbours have no effect on it.
#pragma once

#include "cpu/kernels/forward.h"
#include "cpu/kernels/tile_softmax.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// The pipeline for one panel and the keys [from, to), whose blocks start at `j0`.
template <class Math>
template <bool kSquares>
inline void Forward<Math>::pipeline(Panel& panel, int64_t j0, int64_t from, int64_t to) {
    from -= (from - j0) % Math::kStep;
    const auto block_end = [&](int64_t j) { return lesser(j0 + ((j - j0) / Bc + 1) * Bc, to); };
    const float factor = exponent_factor();
    const int64_t o_steps = products_of(Math::kSums) * (rows_of_o() / kLanes) * (Bc / Math::kStep);
    const int64_t s_steps = products_of(Math::kScores) * steps_of<Math>(d_) * (Bc / kLanes);
    typename Math::Softmax exponentials;
    scores<kSquares>(panel, from, block_end(from), exponentials);
    for (int64_t before = from, j = from, next; j < to; before = j, j = next) {
        next = block_end(j);
        const int64_t after = next < to ? block_end(next) : next;
        finish_scores(panel, j, next);
        Vec alpha[2] = {broadcast(1.0f), broadcast(1.0f)}, sum[2];
        const IntVec due[2] = {wants_maximum(panel, 0), wants_maximum(panel, 1)};
        if (any(due[0] | due[1])) raise_maximum(panel, next - j, due, alpha);
        exponentials.start(s_, p_, round_up(next - j, Math::kStep), factor, panel.m,
                           (j > from ? o_steps : 0) + (next < to ? s_steps : 0));
        if (j > from) add_products<kSquares>(panel, before, j, p_before_, exponentials);
        if (next < to) scores<kSquares>(panel, next, after, exponentials);
        exponentials.finish(sum);
        const IntVec above[2] = {sum[0] > load(panel.most), sum[1] > load(panel.most + kLanes)};
        if (any(above[0] | above[1])) repeat(panel, j, next, after, above, sum, alpha);
        for (int half = 0; half < 2; ++half) {
            float* l = panel.l + half * kLanes;
            store(l, load(l) * alpha[half] + sum[half]);
        }
        rescale(panel, alpha);
        if (next >= to) {
            exponentials.start(nullptr, nullptr, 0, factor, panel.m, 1);
            add_products<kSquares>(panel, j, next, p_, exponentials);
        }
        Scalar* const done = p_before_;
        p_before_ = p_;
        p_ = done;
    }
}

// The queries that need the maximum of this block before its exponentials: those that have seen no key yet, and those
// whose m is the running maximum.
template <class Math>
inline IntVec Forward<Math>::wants_maximum(const Panel& panel, int half) {
    return (load(panel.m + half * kLanes) == broadcast(least_maximum())) |
           (load(panel.most + half * kLanes) == broadcast(__builtin_inff()));
}

// Computes the block [from, to) again, with its own maximum for the queries whose l was `above` their `most`. S of the
// next block, which ends at `after`, was in the same buffer, so it is computed again too.
template <class Math>
void Forward<Math>::repeat(Panel& panel, int64_t from, int64_t to, int64_t after, const IntVec (&above)[2],
                           Vec (&sum)[2], Vec (&alpha)[2]) {
    for (int half = 0; half < 2; ++half) {
        float* most = panel.most + half * kLanes;
        store(most, above[half] ? broadcast(__builtin_inff()) : load(most));
    }
    scores(panel, from, to);
    finish_scores(panel, from, to);
    raise_maximum(panel, to - from, above, alpha);
    typename Math::Softmax exponentials;
    exponentials.start(s_, p_, round_up(to - from, Math::kStep), exponent_factor(), panel.m, 1);
    exponentials.finish(sum);
    if (to < after) scores(panel, to, after);
}

// Writes -inf to the scores that the band hides, and to the rows that are missing to a whole step.
template <class Math>
inline void Forward<Math>::finish_scores(Panel& panel, int64_t from, int64_t to) {
    if (!head_.covers(panel.i0, panel.i0 + panel.count, from, to))
        modify_scores(head_, {s_, panel.i0, panel.count, from, to}, nullptr, DerivativeBy::product, nullptr,
                      {tile_, rows_, functions_});
    for (int64_t n = (to - from) * kPanel; n < round_up(to - from, Math::kStep) * kPanel; n += kLanes)
        store(s_ + n, broadcast(-__builtin_inff()));
}

// m_new = max(m, rowmax(S)) for the queries that are `due`; alpha is multiplied by e^(m - m_new).
template <class Math>
inline void Forward<Math>::raise_maximum(Panel& panel, int64_t keys, const IntVec (&due)[2], Vec (&alpha)[2]) {
    Vec block_max[2];
    take_maximum(keys, block_max);
    for (int half = 0; half < 2; ++half) {
        const Vec old = load(panel.m + half * kLanes);
        const Vec m = due[half] ? max(block_max[half] * exponent_factor(), old) : old;
        alpha[half] *= exp2(old - m);
        store(panel.m + half * kLanes, m);
    }
}

// Whether O of any query left fp32's range, as large V times P above 1 can do. Exactly these queries are then walked
// again with their running maximum.
template <class Math>
inline bool Forward<Math>::overflowed(Panel& panel) {
    Vec zero[2] = {};  // 0 where all of O is finite, else NaN
    for (int64_t n = 0; n < dv_ * kPanel; n += kPanel)
        for (int half = 0; half < 2; ++half) zero[half] += load(panel.o + n + half * kLanes) * 0.0f;
    IntVec over[2];
    for (int half = 0; half < 2; ++half) {
        const Vec infinity = broadcast(__builtin_inff());
        over[half] = (zero[half] != zero[half]) & (load(panel.l + half * kLanes) < infinity);
        store(panel.most + half * kLanes, over[half] ? infinity : broadcast(kMostSum));
    }
    return any(over[0] | over[1]);
}

// S^T = K Q^T of keys [from, to), in steps that alternate with those of `other`. S is written only where `other` has
// already read the scores of the block before.
template <class Math>
template <bool kSquares, class Softmax>
inline void Forward<Math>::scores(const Panel& panel, int64_t from, int64_t to, Softmax& other) {
    const Operand2d<Math> k = blocks_.k(from);
    const auto along = [&](auto half) __attribute__((always_inline)) {
        other.step(half);
    };
    const auto before_store = [&](int64_t end) __attribute__((always_inline)) {
        other.pass(end);
    };
    const auto after_store = [&](int64_t) __attribute__((always_inline)) {
        look_ahead();
    };
    if constexpr (kSquares) {
        tile_product_in_squares<false>(k.data, Math::row_tiles(k.row), panel.q, kPanel, to - from, steps_of<Math>(d_),
                                       s_, kPanel, along, before_store, after_store);
    } else {
        if constexpr (Math::kParts == 1)
            if (steps_of<Math>(d_) == 2)
                return tile_product_of_two_steps(k.data, Math::row_tiles(k.row), panel.q, kPanel, to - from, s_, kPanel,
                                                 along, before_store, after_store);
        tile_product<false, Math::kScores>(k.data, Math::row_tiles(k.row), panel.q, kPanel, to - from,
                                           steps_of<Math>(d_), s_, kPanel, along, before_store, after_store);
    }
}

// O^T += V^T P^T of keys [from, to), in steps that alternate with those of `other`.
template <class Math>
template <bool kSquares, class Softmax>
inline void Forward<Math>::add_products(Panel& panel, int64_t from, int64_t to, const Scalar* p, Softmax& other) {
    if constexpr (kSquares)
        tile_product_in_squares<true>(
            blocks_.v(from).data, Math::column_tiles(dv_), p, kPanel, dv_, steps_of<Math>(to - from), panel.o,
            kPanel, [&](auto half) __attribute__((always_inline)) { other.step(half); });
    else
        tile_product<true, Math::kSums>(
            blocks_.v(from).data, Math::column_tiles(dv_), p, kPanel, dv_, steps_of<Math>(to - from), panel.o,
            kPanel, [&](auto half) __attribute__((always_inline)) { other.step(half); });
}

// S^T = K Q^T with no other work in between.
template <class Math>
void Forward<Math>::scores(const Panel& panel, int64_t from, int64_t to) {
    const Operand2d<Math> k = blocks_.k(from);
    tile_product<false, Math::kScores>(k.data, Math::row_tiles(k.row), panel.q, kPanel, to - from, steps_of<Math>(d_),
                                       s_, kPanel, Nothing{}, Nothing{}, [&](int64_t) { look_ahead(); });
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
