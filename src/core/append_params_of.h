// append_params_of.h: an append's problem and operands as both backends work on them. In FLASHTILE_TARGET, since each
// instruction set has an AppendParams of its own.
#pragma once

#include "core/append_problem.h"
#include "core/device_operands.h"
#include "shared/append_params.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline AppendParams append_params_of(const AppendProblem& p, const AppendOperands& x) {
    AppendParams a{};
    a.k = tensor_of(x.k);
    a.v = tensor_of(x.v);
    a.q = tensor_of(x.q);
    a.q_out = tensor_of(x.q_out);
    a.k_cache = tensor_of(x.k_cache);
    a.v_cache = tensor_of(x.v_cache);
    a.cu_seqlens_k_new = lengths_of(x.cu_seqlens_k_new);
    a.cu_seqlens_q = lengths_of(x.cu_seqlens_q);
    a.cache_seqlens = lengths_of(x.cache_seqlens);
    a.cache_batch_idx = lengths_of(x.cache_batch_idx);
    a.rotary_offsets = lengths_of(x.rotary_offsets);
    a.slots = lengths_of(x.slots);
    a.positions = lengths_of(x.positions);
    a.positions_q = lengths_of(x.positions_q);
    a.block_table = x.block_table;
    a.block_table_stride = x.block_table_stride;
    a.cos = x.cos;
    a.sin = x.sin;
    a.cos_stride = x.cos_stride;
    a.sin_stride = x.sin_stride;
    a.batch = p.batch;
    a.rows_k = p.rows_k;
    a.seqlen_k = p.seqlen_k;
    a.kv_heads = p.kv_heads;
    a.rows_q = p.rows_q;
    a.seqlen_q = p.seqlen_q;
    a.heads = p.heads;
    a.pages = p.pages;
    a.page_size = p.page_size;
    a.max_pages = p.max_pages;
    a.table_rows = p.positions;
    a.head_dim = static_cast<int>(p.head_dim);
    a.head_dim_v = static_cast<int>(p.head_dim_v);
    a.pairs = static_cast<int>(p.pairs);
    a.rotary_begin = static_cast<int>(p.rotary_begin);
    a.interleaved = p.interleaved ? 1 : 0;
    a.one_position = p.one_position ? 1 : 0;
    a.table_element = p.table_dtype == DType::fp16   ? Element::fp16
                      : p.table_dtype == DType::bf16 ? Element::bf16
                                                     : Element::fp32;
    const auto scales_of = [](const Scales& scales) {
        return DeviceScales{scales.data, scales.stride_batch, scales.stride_head, scales.stride_block, 0};
    };
    a.k_scale = scales_of(x.k_scale);
    a.v_scale = scales_of(x.v_scale);
    a.scale_blocks = p.scale_block != 0 ? 1 : 0;
    while (std::int64_t{1} << a.scale_shift < p.scale_block) ++a.scale_shift;
    return a;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
