// tile_choice.h: what the tile unit's speed beside the vector units' decides, as measured (docs/performance/amx.md):
// from how many keys on tiles win over avx512, and how many queries share a copy of keys in backward.
#pragma once

#include "core/problem.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct TileChoice {
    int64_t widest;       // head dimension that the row is for
    int64_t fewest_keys;  // where tiles begin to win: fewer are padded to more than avx512 has to do
    int64_t fewest_fp16;  // likewise in fp16, which takes them three or four products
};

// One core, forward, time over avx512's: d64 8 keys 1.22, 16 keys 0.90; d128 8 keys 1.01, 16 keys 0.70. fp16: d64 48
// keys 1.12, 64 keys 0.97; d128 40 keys 1.12, 48 keys 0.98.
constexpr TileChoice kTileChoices[] = {{64, 16, 64}, {INT64_MAX, 9, 48}};

inline const TileChoice& tile_choice(int64_t d, int64_t dv) {
    const TileChoice* row = kTileChoices;
    while (row->widest < (d > dv ? d : dv)) ++row;
    return *row;
}

// Whether a problem runs on tiles. `batch_invariant` takes no size into account, since a row's bits may then not depend
// on it.
inline bool tiles_win(const Problem& p) {
    const TileChoice& row = tile_choice(p.head_dim, p.head_dim_v);
    return p.batch_invariant || p.seqlen_k >= (p.dtype == DType::fp16 ? row.fewest_fp16 : row.fewest_keys);
}

// Whether forward multiplies in squares of two tiles by two, whose fewer loads count where two threads share a core.
// Time over that of tiles in pairs: d128 0.92 to 0.98 on one thread, 0.82 to 0.97 on 8 and 16; d64 0.98 to 1.08.
inline bool squares_win(int64_t d, int64_t dv) {
    return d > 64 && dv > 64;
}

// Whether a block of the backward takes 256 queries instead of 128; no bit depends on it. One core, time over 128's: n
// 512 d64 1.13, d128 0.94 (both noisy); n 2048 and 8192 0.88 to 0.90.
inline bool many_backward_queries(const Problem& p) {
    return p.seqlen_q >= 1024;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
