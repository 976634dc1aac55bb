// scores.h: turns q.k into the score that softmax sees, on one panel of S^T. The order is that of docs/semantics.md:
// softcap, ALiBi, bias, the score function, then the masks. forward.h and backward.h call it only for blocks that need
// one of these.
#pragma once

#include "cpu/kernels/function.h"
#include "cpu/kernels/panel.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Limits a difference of positions to 32 bits. A block is so small that the limit changes no comparison within it.
inline int32_t saturate(int64_t x) {
    constexpr int64_t kFar = int64_t{1} << 30;
    return static_cast<int32_t>(x < -kFar ? -kFar : (x > kFar ? kFar : x));
}

// The scores of one panel and one block of keys: rows of S^T are keys [j0, j1), lanes are queries [i0, i0 + count).
struct ScoreTile {
    float* s;  // [j - j0][kPanel]
    int64_t i0, count;
    int64_t j0, j1;
    functions::Visible shown = functions::Visible::all;  // Head::shown
};

// What modify_scores works in.
struct ScoreScratch {
    float* tile;         // (j1 - j0 + kLanes) rows of kPanel
    float* rows;         // kLanes rows of round_up(j1 - j0, kLanes)
    int64_t* functions;  // as FunctionTile wants it
};

// Of the score, by scale * q.k or by what bias is added to. function: there is none, and in its place is the score that
// the score function is given.
enum class DerivativeBy : uint8_t { product, bias, function };

inline void scale_tile(const ScoreTile& tile, float factor) {
    for (int64_t n = 0; n < (tile.j1 - tile.j0) * kPanel; n += kLanes) store(tile.s + n, load(tile.s + n) * factor);
}

// The score function, and its derivative times what `derivative` holds, where that is not null.
template <class Int>
inline void apply_score_function(const Head& head, const ScoreTile& tile, float* derivative, int64_t* memory) {
    FunctionTile<Int> function(head, derivative != nullptr ? head.functions.gradient : head.functions.score, tile.s,
                               tile.i0, tile.j0, tile.j1 - tile.j0, memory);
    for (int64_t j = 0; j < tile.j1 - tile.j0; j += FunctionTile<Int>::kRows) {
        const int64_t first = j * kPanel, end = lesser(j + FunctionTile<Int>::kRows, tile.j1 - tile.j0) * kPanel;
        function.evaluate(j);
        for (int64_t n = first; n < end; n += kLanes) {
            const Vec s = load(tile.s + n);  // what a bias has hidden stays so
            store(tile.s + n, s <= kLeastScore ? broadcast(-__builtin_inff()) : load(function.result() + n - first));
        }
        if (derivative == nullptr) continue;
        for (int64_t n = first; n < end; n += kLanes)
            store(derivative + n, load(derivative + n) * load(function.derivative() + n - first));
    }
}

template <class Int>
inline void apply_mask_function(const Head& head, const ScoreTile& tile, int64_t* memory) {
    FunctionTile<Int> function(head, head.functions.mask, tile.s, tile.i0, tile.j0, tile.j1 - tile.j0, memory);
    for (int64_t j = 0; j < tile.j1 - tile.j0; j += FunctionTile<Int>::kRows) {
        const int64_t first = j * kPanel, end = lesser(j + FunctionTile<Int>::kRows, tile.j1 - tile.j0) * kPanel;
        function.evaluate(j);
        for (int64_t n = first; n < end; ++n)
            if (function.mask()[n - first] == 0) tile.s[n] = -__builtin_inff();
    }
}

// Hides what the user's lists and the mask function do. A panel's queries lie in one block, its keys in several.
template <class Int>
inline void hide_by_lists_and_function(const Head& head, const ScoreTile& tile, int64_t* memory) {
    if (!head.blocks) return apply_mask_function<Int>(head, tile, memory);
    for (int64_t j = tile.j0, end; j < tile.j1; j = end) {
        end = lesser(head.blocks.end_of_block(j), tile.j1);
        const ScoreTile part{tile.s + (j - tile.j0) * kPanel, tile.i0, tile.count, j, end, tile.shown};
        const BlockKind kind = head.blocks.at(tile.i0, j);
        if (kind == BlockKind::hidden)
            for (int64_t n = 0; n < (end - j) * kPanel; n += kLanes) store(part.s + n, broadcast(-__builtin_inff()));
        else if (kind == BlockKind::partial && head.functions.mask)
            apply_mask_function<Int>(head, part, memory);
    }
}

template <class Int>
inline void apply_functions(const Head& head, const ScoreTile& tile, float* derivative, int64_t* memory) {
    if (head.functions.score) apply_score_function<Int>(head, tile, derivative, memory);
    if (tile.shown == functions::Visible::some) hide_by_lists_and_function<Int>(head, tile, memory);
}

// Applies softcap, ALiBi, bias, functions, masks and band, and returns true if every key is seen by some query of the
// panel. `derivative` receives what `by` says, in the layout of s. `visible` receives for each key whether some
// query of the panel sees it. Either may be null; without `visible` the result is true.
inline bool modify_scores(const Head& head, const ScoreTile& tile, float* derivative, DerivativeBy by, uint8_t* visible,
                          const ScoreScratch& scratch) {
    const int64_t keys = tile.j1 - tile.j0;
    if (derivative != nullptr && (head.softcap == 0.0f || by == DerivativeBy::bias)) {
        for (int64_t n = 0; n < keys * kPanel; n += kLanes) store(derivative + n, broadcast(1.0f));
    }
    if (head.softcap != 0.0f) {
        const float inverse = 1.0f / head.softcap;
        for (int64_t n = 0; n < keys * kPanel; n += kLanes) {
            const Vec t = tanh(load(tile.s + n) * inverse);
            store(tile.s + n, t * head.softcap);
            if (derivative != nullptr && by == DerivativeBy::product) store(derivative + n, 1.0f - t * t);
        }
    }
    if (head.alibi && head.positions != nullptr) {
        for (int64_t j = 0; j < keys; ++j)
            for (int64_t lane = 0; lane < tile.count; ++lane) {
                const int64_t distance = head.position(tile.i0 + lane) - head.key_position(tile.j0 + j);
                tile.s[j * kPanel + lane] -= head.slope * static_cast<float>(distance < 0 ? -distance : distance);
            }
    } else if (head.alibi) {
        // distance = i + offset - j, which is exact unless it exceeds the limit of saturate()
        for (int half = 0; half < 2; ++half) {
            IntVec distance;
            for (int lane = 0; lane < kLanes; ++lane)
                distance[lane] = saturate(tile.i0 + half * kLanes + lane + head.band.offset - tile.j0);
            for (int64_t j = 0; j < keys; ++j) {
                float* s = tile.s + j * kPanel + half * kLanes;
                const IntVec d = distance - static_cast<int32_t>(j);
                const Vec magnitude = __builtin_convertvector(d < 0 ? -d : d, Vec);
                store(s, load(s) - head.slope * magnitude);
            }
        }
    }
    if (head.bias) {
        load_panel(head.bias, tile.i0, tile.count, tile.j0, keys, 1.0f, scratch.rows, scratch.tile);
        for (int64_t n = 0; n < keys * kPanel; n += kLanes)
            store(tile.s + n, load(tile.s + n) + load(scratch.tile + n));
    }
    if (head.functions.functions != nullptr || head.blocks) {
        if (by == DerivativeBy::function && derivative != nullptr) {
            memcpy(derivative, tile.s, static_cast<size_t>(keys * kPanel) * sizeof(float));
            derivative = nullptr;
        }
        if (head.narrow_ints)
            apply_functions<int32_t>(head, tile, derivative, scratch.functions);
        else
            apply_functions<int64_t>(head, tile, derivative, scratch.functions);
    }
    const Vec hidden = broadcast(-__builtin_inff());
    if (head.mask) {
        load_panel(head.mask, tile.i0, tile.count, tile.j0, keys, 1.0f, scratch.rows, scratch.tile);
        for (int64_t n = 0; n < keys * kPanel; n += kLanes)
            store(tile.s + n, load(scratch.tile + n) != 0.0f ? load(tile.s + n) : hidden);
    }
    if (const int64_t old = head.old_keys(); head.tree && tile.j1 > old) {
        const int64_t first = tile.j0 > old ? tile.j0 : old;  // of the tree's keys
        load_panel(head.tree, tile.i0, tile.count, first - old, tile.j1 - first, 1.0f, scratch.rows, scratch.tile);
        float* s = tile.s + (first - tile.j0) * kPanel;
        for (int64_t n = 0; n < (tile.j1 - first) * kPanel; n += kLanes)
            store(s + n, load(scratch.tile + n) != 0.0f ? load(s + n) : hidden);
    }
    if (head.positions != nullptr) {
        for (int64_t j = 0; j < keys; ++j)
            for (int64_t lane = 0; lane < kPanel; ++lane)
                if (lane >= tile.count || !head.band_has(tile.i0 + lane, tile.j0 + j))
                    tile.s[j * kPanel + lane] = -__builtin_inff();
    } else if (!head.covers(tile.i0, tile.i0 + tile.count, tile.j0, tile.j1)) {
        for (int half = 0; half < 2; ++half) {
            IntVec first, end;
            for (int lane = 0; lane < kLanes; ++lane) {
                const int64_t i = tile.i0 + half * kLanes + lane;
                const bool present = half * kLanes + lane < tile.count;  // a lane without a query sees no key
                first[lane] = saturate(head.first_key(i) - tile.j0);
                end[lane] = present ? saturate(head.end_key(i) - tile.j0) : first[lane];
            }
            for (int64_t j = 0; j < keys; ++j) {
                float* s = tile.s + j * kPanel + half * kLanes;
                const IntVec at = broadcast_int(static_cast<int32_t>(j));
                store(s, ((at >= first) & (at < end)) ? load(s) : hidden);
            }
        }
    }
    if (visible == nullptr) return true;
    const float unit = head.score_unit();
    bool all = true;
    for (int64_t j = 0; j < keys; ++j) {
        bool any = false;
        // Written with !(<=) and not with >, since a NaN score counts as seen.
        for (int64_t lane = 0; lane < tile.count; ++lane) any |= !(tile.s[j * kPanel + lane] * unit <= kLeastScore);
        visible[j] = any;
        all &= any;
    }
    return all;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
