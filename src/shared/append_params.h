// append_params.h: appending to a cache as both backends see it: what the kernel gets, where a new row goes, at which
// position it is rotated, and the rotation itself, in one order of operations, so that all give the same bits. Values
// that lie in device memory are clamped here: wrong ones lead nowhere out of bounds. Included by the host compiler and
// by NVRTC.
#pragma once

#include "shared/kernel_config.h"
#include "shared/kernel_params.h"
#include "shared/rounding.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Absent tensors and lists are null. core/append_problem.h says what the sizes are.
struct AppendParams {
    DeviceTensor k, v, q, q_out, k_cache, v_cache;
    DeviceLengths cu_seqlens_k_new, cu_seqlens_q, cache_seqlens, cache_batch_idx, rotary_offsets, slots, positions,
        positions_q;
    const int* block_table;
    Index block_table_stride;
    const void *cos, *sin;
    Index cos_stride, sin_stride;

    Index batch, rows_k, seqlen_k, kv_heads, rows_q, seqlen_q, heads;
    Index pages, page_size, max_pages;
    Index table_rows;
    int head_dim, head_dim_v;
    int pairs, rotary_begin;
    int interleaved, one_position;
    Element table_element;
    DeviceScales k_scale, v_scale;  // of a cache of e4m3
    int scale_blocks;               // its pages' rows have them, in blocks, rather than sequences
    int scale_shift;                // log2 of a block's rows
};

FLASHTILE_DEVICE Index clamped(Index x, Index low, Index high) {
    return x < low ? low : (x > high ? high : x);
}

// Row n of sequence b, which is row `row` of row_batch in memory; n < 0: a row of no sequence.
struct OwnedRow {
    Index b, n;
    Index row_batch, row;
};

FLASHTILE_DEVICE OwnedRow owned_row(const DeviceLengths& cu_seqlens, Index batch, Index seqlen, Index rows, Index row) {
    if (cu_seqlens.data == nullptr) return {row / seqlen, row % seqlen, row / seqlen, row % seqlen};
    const auto start = [&](Index b) { return clamped(value_at(cu_seqlens, b), 0, rows); };
    Index low = 0, high = batch;  // the last sequence that starts at or before the row
    while (high - low > 1) {
        const Index middle = (low + high) / 2;
        if (start(middle) <= row)
            low = middle;
        else
            high = middle;
    }
    const bool owned = batch > 0 && start(low) <= row && row < start(low + 1);
    return {low, owned ? row - start(low) : -1, 0, row};
}

// Keys that a sequence has before the append, `most` where a wrong length says more.
FLASHTILE_DEVICE Index keys_before(const AppendParams& p, Index b, Index most) {
    return p.cache_seqlens.data != nullptr ? clamped(value_at(p.cache_seqlens, b), 0, most) : 0;
}

// Where a new row goes; page < 0: nowhere.
struct CachePlace {
    Index page, row;
};

FLASHTILE_DEVICE CachePlace place_of(const AppendParams& p, const OwnedRow& of, Index row) {
    constexpr CachePlace kNowhere{-1, 0};
    if (p.slots.data != nullptr) {
        const Index slot = value_at(p.slots, row);
        if (slot < 0 || slot >= p.pages * p.page_size) return kNowhere;
        return {slot / p.page_size, slot % p.page_size};
    }
    const Index capacity = p.max_pages * p.page_size, at = keys_before(p, of.b, capacity) + of.n;
    if (at >= capacity) return kNowhere;
    Index page = of.b;
    if (p.block_table != nullptr)
        page = p.block_table[of.b * p.block_table_stride + at / p.page_size];
    else if (p.cache_batch_idx.data != nullptr)
        page = value_at(p.cache_batch_idx, of.b);
    if (page < 0 || page >= p.pages) return kNowhere;
    return {page, p.block_table != nullptr ? at % p.page_size : at};
}

// The row of the table by which row n of sequence b is rotated, where `given` has no positions of its own.
FLASHTILE_DEVICE Index position_of(const AppendParams& p, const DeviceLengths& given, Index row, Index b, Index n) {
    if (given.data != nullptr) return clamped(value_at(given, row), 0, p.table_rows - 1);
    const Index first = p.rotary_offsets.data != nullptr ? clamped(value_at(p.rotary_offsets, b), 0, p.table_rows)
                                                         : keys_before(p, b, p.table_rows);
    return clamped(first + n, 0, p.table_rows - 1);
}
FLASHTILE_DEVICE Index key_position(const AppendParams& p, const OwnedRow& of, Index row) {
    return position_of(p, p.positions, row, of.b, of.n);
}
FLASHTILE_DEVICE Index query_position(const AppendParams& p, const OwnedRow& of, Index row) {
    return position_of(p, p.positions_q, row, of.b, p.one_position != 0 ? 0 : of.n);
}

// a b - c d to 1.5 units of the last place, however much cancels (Kahan's method): what the product c d lost in
// rounding is added again.
FLASHTILE_DEVICE float difference_of_products(float a, float b, float c, float d) {
    const float cd = rounded_product(c, d);
    const float lost = fused_product(-c, d, cd);
    return fused_product(a, b, -cd) + lost;
}

struct Pair {
    float x, y;
};

FLASHTILE_DEVICE Pair rotated(Pair v, float cos, float sin) {
    return {difference_of_products(v.x, cos, v.y, sin), difference_of_products(v.y, cos, -v.x, sin)};
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
