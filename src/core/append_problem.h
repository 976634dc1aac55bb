// append_problem.h: the validated problem of appending keys and values to a cache, as problem.h has that of attention,
// which has one of these where it appends first.
#pragma once

#include <cstdint>

#include "core/operand.h"

namespace flashtile {

// Of k and v; wider than attention's, for the latent heads of MLA.
inline constexpr std::int64_t kMostAppendedColumns = 1024;

struct AppendProblem {
    DType dtype = DType::unset;
    DType cache_dtype = DType::unset;  // where it is another: e4m3, with scales; unset: that one
    ScaleKind k_scale = ScaleKind::none, v_scale = ScaleKind::none;
    std::int64_t scale_block = 0;
    std::int64_t batch = 0;
    // The new keys and values. Packed ones have no seqlen_k.
    bool packed_k = false;
    std::int64_t rows_k = 0;  // of all sequences
    std::int64_t seqlen_k = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t head_dim_v = 0;  // 0: no v
    // The queries that are rotated with them; 0 rows: none.
    bool packed_q = false;
    std::int64_t rows_q = 0;
    std::int64_t seqlen_q = 0;
    std::int64_t heads = 0;
    bool one_position = false;  // every query of a sequence is rotated as its first
    // The cache is `pages` of `page_size` rows. A dense one has a page for each of its sequences.
    bool paged = false;
    std::int64_t pages = 0;
    std::int64_t page_size = 0;
    std::int64_t max_pages = 1;  // of a sequence
    // Rotation: the table has `positions` rows of cos and sin of `pairs` angles; 0 pairs: none.
    DType table_dtype = DType::unset;
    std::int64_t positions = 0;
    std::int64_t pairs = 0;
    std::int64_t rotary_begin = 0;  // the first column that is rotated
    bool interleaved = false;       // columns 2 n and 2 n + 1 are a pair; else n and n + pairs

    bool quantizes() const { return cache_dtype != DType::unset; }
    std::int64_t capacity() const { return max_pages * page_size; }  // rows of a sequence
    // The work: a head of a new key and value, or of a query.
    std::int64_t key_items() const { return rows_k * kv_heads; }
    std::int64_t items() const { return key_items() + rows_q * heads; }
    bool operator==(const AppendProblem&) const = default;
};

struct AppendOperands {
    Operand k, v, q, q_out;    // v and q may be absent
    Operand k_cache, v_cache;  // the batch stride is that of pages
    Scales k_scale, v_scale;   // of the cache
    Lengths cu_seqlens_k_new, cu_seqlens_q;
    Lengths cache_seqlens, cache_batch_idx, rotary_offsets;  // one a sequence
    Lengths slots, positions;                                // one a new row
    Lengths positions_q;                                     // one a query
    const std::int32_t* block_table = nullptr;
    std::int64_t block_table_stride = 0;
    const void *cos = nullptr, *sin = nullptr;
    std::int64_t cos_stride = 0, sin_stride = 0;
};

}  // namespace flashtile
