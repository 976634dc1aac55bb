// tile_choice.h: thresholds for AMX, which were measured (docs/performance/amx.md): from how many keys on AMX is faster
// than avx512, which order of tiles forward uses, and how many queries share a copy of the keys in backward.
#pragma once

#include "core/problem.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct TileChoice {
    int64_t widest;       // the greatest head dimension that this row is for
    int64_t fewest_keys;  // from here on AMX is faster; with fewer keys its padding costs more than it gains
    int64_t fewest_fp16;  // the same for fp16, for which AMX needs three or four products
};

// The times of AMX divided by those of avx512, in forward on one core:
//   bf16   d 64: 1.22 with 8 keys, 0.90 with 16     d 128: 1.01 with 8 keys, 0.70 with 16
//   fp16   d 64: 1.12 with 48 keys, 0.97 with 64    d 128: 1.12 with 40 keys, 0.98 with 48
constexpr TileChoice kTileChoices[] = {{64, 16, 64}, {INT64_MAX, 9, 48}};

inline const TileChoice& tile_choice(int64_t d, int64_t dv) {
    const TileChoice* row = kTileChoices;
    while (row->widest < (d > dv ? d : dv)) ++row;
    return *row;
}

// From how many keys on a problem runs on AMX.
inline int64_t tiles_from(const Problem& p) {
    const TileChoice& row = tile_choice(p.head_dim, p.head_dim_v);
    return p.dtype == DType::fp16 ? row.fewest_fp16 : row.fewest_keys;
}

// Whether a problem runs on AMX. With `batch_invariant` every problem does, since a row's bits may then not depend on
// the number of keys.
inline bool tiles_win(const Problem& p) {
    return p.batch_invariant || p.seqlen_k >= tiles_from(p);
}

// Whether forward multiplies squares of two by two tiles instead of pairs of tiles. Squares need fewer loads, which
// matters most where two threads share a core. Their time divided by that of pairs: at d 128 0.92 to 0.98 on one thread
// and 0.82 to 0.97 on 8 and 16 threads, at d 64 0.98 to 1.08.
inline bool squares_win(int64_t d, int64_t dv) {
    return d > 64 && dv > 64;
}

// Whether a block of backward has 256 queries instead of 128. The results have the same bits either way. The time with
// 256 divided by that with 128, on one core: 1.13 (d 64) and 0.94 (d 128) at 512 queries, both noisy; 0.88 to 0.90 at
// 2048 and 8192 queries.
inline bool many_backward_queries(const Problem& p) {
    return p.seqlen_q >= 1024;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
