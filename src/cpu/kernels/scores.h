// scores.h: from q.k to the score that softmax sees, on one panel of S^T: softcap, ALiBi, bias, then the masks, in
// that order (docs/semantics.md). Only blocks that need any of it come here.
#pragma once

#include "cpu/kernels/panel.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Differences of positions that a band can tell apart within a block; saturation keeps them in 32 bits.
inline int32_t saturate(int64_t x) {
    constexpr int64_t kFar = int64_t{1} << 30;
    return static_cast<int32_t>(x < -kFar ? -kFar : (x > kFar ? kFar : x));
}

// One panel x key block of scores: S^T rows are keys [j0, j1), lanes are queries [i0, i0 + count).
struct ScoreTile {
    float* s;  // [j - j0][kPanel]
    int64_t i0, count;
    int64_t j0, j1;
};

inline void scale_tile(const ScoreTile& tile, float factor) {
    for (int64_t n = 0; n < (tile.j1 - tile.j0) * kPanel; n += kLanes) store(tile.s + n, load(tile.s + n) * factor);
}

// Applies softcap, ALiBi, bias, mask and band. Where `derivative` is not null it receives softcap's 1 - tanh^2 in the
// layout of s. Where `visible` is not null it receives, per key, whether any query of the panel sees it; returns true
// if all keys are seen. `tile_buffer` holds (j1 - j0 + kLanes) rows of kPanel floats and `row_buffer` kLanes rows of
// round_up(j1 - j0, kLanes).
inline bool modify_scores(const Head& head, const ScoreTile& tile, float* derivative, uint8_t* visible,
                          float* tile_buffer, float* row_buffer) {
    const int64_t keys = tile.j1 - tile.j0;
    if (head.softcap != 0.0f) {
        const float inverse = 1.0f / head.softcap;
        for (int64_t n = 0; n < keys * kPanel; n += kLanes) {
            const Vec t = tanh(load(tile.s + n) * inverse);
            store(tile.s + n, t * head.softcap);
            if (derivative != nullptr) store(derivative + n, 1.0f - t * t);
        }
    }
    if (head.alibi) {
        // i + offset - j, exact in 32 bits wherever a distance fits them
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
        load_panel(head.bias, tile.i0, tile.count, tile.j0, keys, 1.0f, row_buffer, tile_buffer);
        for (int64_t n = 0; n < keys * kPanel; n += kLanes) store(tile.s + n, load(tile.s + n) + load(tile_buffer + n));
    }
    const Vec hidden = broadcast(-__builtin_inff());
    if (head.mask) {
        load_panel(head.mask, tile.i0, tile.count, tile.j0, keys, 1.0f, row_buffer, tile_buffer);
        for (int64_t n = 0; n < keys * kPanel; n += kLanes)
            store(tile.s + n, load(tile_buffer + n) != 0.0f ? load(tile.s + n) : hidden);
    }
    if (!head.band.covers(tile.i0, tile.i0 + tile.count, tile.j0, tile.j1)) {
        for (int half = 0; half < 2; ++half) {
            IntVec first, end;
            for (int lane = 0; lane < kLanes; ++lane) {
                const int64_t i = tile.i0 + half * kLanes + lane;
                const bool present = half * kLanes + lane < tile.count;  // a lane without a query sees nothing
                first[lane] = saturate(head.band.first_key(i) - tile.j0);
                end[lane] = present ? saturate(head.band.end_key(i, head.seqlen_k) - tile.j0) : first[lane];
            }
            for (int64_t j = 0; j < keys; ++j) {
                float* s = tile.s + j * kPanel + half * kLanes;
                const IntVec at = broadcast_int(static_cast<int32_t>(j));
                store(s, ((at >= first) & (at < end)) ? load(s) : hidden);
            }
        }
    }
    if (visible == nullptr) return true;
    bool all = true;
    for (int64_t j = 0; j < keys; ++j) {
        bool any = false;
        // Not "greater": a NaN score is seen.
        for (int64_t lane = 0; lane < tile.count; ++lane) any |= !(tile.s[j * kPanel + lane] <= kLeastScore);
        visible[j] = any;
        all &= any;
    }
    return all;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
