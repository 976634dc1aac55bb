// row_scores.h: what scores.h does to a tile of scores, for one query and some neighbouring keys in the lanes: softcap,
// ALiBi, bias and masks, in the order of docs/semantics.md, and dropout.
#pragma once

#include "cpu/kernels/scores.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Keys [j0, j0 + lanes), of which those before j1 exist; lanes is a multiple of kLanes.
struct RowBlock {
    int64_t j0, lanes, j1;
};

// scores(j0 + n) = f(score, term), the terms of row i of a bias or mask, whose column may be one for all.
template <class F>
inline void with_terms(const Rows& x, int64_t i, int64_t first_col, int64_t cols, float* s, float* terms, F f) {
    if (x.stride_col == 1) {
        load_row(x.dtype, x.at(i, first_col), cols, terms);
    } else {
        const float same = x.element(i, first_col);
        for (int64_t n = 0; n < cols; ++n) terms[n] = same;
    }
    for (int64_t n = 0; n < cols; ++n) s[n] = f(s[n], terms[n]);
}

// Scores of query i, which may see the keys [first, end). `terms` has room for block.lanes floats.
inline void modify_row(const Head& head, int64_t i, const RowBlock& block, int64_t first, int64_t end, float* s,
                       float* terms) {
    constexpr float kHidden = -__builtin_inff();
    const int64_t keys = block.j1 - block.j0;
    if (head.modified())
        for (int64_t n = 0; n < block.lanes; n += kLanes) store(s + n, load(s + n) * head.score_factor());
    if (head.softcap != 0.0f) {
        const float inverse = 1.0f / head.softcap;
        for (int64_t n = 0; n < block.lanes; n += kLanes) store(s + n, tanh(load(s + n) * inverse) * head.softcap);
    }
    if (head.alibi)
        for (int64_t n = 0; n < keys; ++n) {
            const int32_t distance = head.positions != nullptr
                                         ? saturate(head.position(i) - head.key_position(block.j0 + n))
                                         : saturate(i + head.band.offset - block.j0) - static_cast<int32_t>(n);
            s[n] -= head.slope * static_cast<float>(distance < 0 ? -distance : distance);
        }
    if (head.bias)
        with_terms(head.bias, i, block.j0, keys, s, terms, [](float score, float term) { return score + term; });
    const auto kept = [](float score, float keeps) { return keeps != 0.0f ? score : kHidden; };
    if (head.mask) with_terms(head.mask, i, block.j0, keys, s, terms, kept);
    if (const int64_t old = head.old_keys(); head.tree && block.j1 > old) {
        const int64_t from = greater(block.j0, old);
        with_terms(head.tree, i, from - old, block.j1 - from, s + (from - block.j0), terms, kept);
    }
    if (head.positions != nullptr)
        for (int64_t n = 0; n < keys; ++n)
            if (!head.band_has(i, block.j0 + n)) s[n] = kHidden;
    for (int64_t n = 0; n < lesser(first - block.j0, block.lanes); ++n) s[n] = kHidden;
    for (int64_t n = greater(end - block.j0, 0); n < block.lanes; ++n) s[n] = kHidden;
}

// Takes dropped probabilities of query i out of P.
inline void drop_row(const Head& head, int64_t i, const RowBlock& block, float* p) {
    for (int64_t n = 0; n < block.j1 - block.j0; ++n)
        if (!head.dropout.keeps(static_cast<unsigned>(head.origin_i + i),
                                static_cast<unsigned>(head.origin_j + block.j0 + n)))
            p[n] = 0.0f;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
