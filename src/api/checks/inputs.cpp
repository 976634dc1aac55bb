// inputs.cpp: q, k and v, which give a problem its sizes. Lengths and what is added to the scores have their own files.
#include "api/checks/inputs.h"

#include <algorithm>
#include <cstdint>

#include "api/checks/append_kv.h"
#include "api/checks/block_lists.h"
#include "api/checks/cache.h"
#include "api/checks/functions.h"
#include "api/checks/options.h"
#include "api/checks/read_struct.h"
#include "api/checks/refuse.h"
#include "api/checks/scales.h"
#include "api/checks/score_tensors.h"
#include "api/checks/sequence_lengths.h"
#include "api/checks/sequence_shards.h"

namespace flashtile::api {
namespace {

void check_dtypes(const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, Problem& p) {
    p.dtype = q.dtype();
    if (p.dtype != DType::fp8_e4m3) q.check_float();
    const bool e4m3_keys = k.dtype() == DType::fp8_e4m3;
    if (e4m3_keys && p.dtype == DType::fp32)
        refuse("k.dtype", name(k.dtype()), "fp32, that of q (fp8_e4m3 goes with a q of fp8_e4m3, fp16 or bf16)");
    if (!e4m3_keys) k.check_dtype(p.dtype, ", that of q");
    v.check_dtype(k.dtype(), ", that of k");
    if (k.dtype() != p.dtype) p.kv_dtype = k.dtype();
    if (p.dtype == DType::fp8_e4m3) p.out_dtype = DType::bf16;  // until the outputs say another
}

void check_heads(const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, Problem& p) {
    p.heads = q.shape(q->rank - 2);
    p.kv_heads = k.shape(k->rank - 2);
    p.head_dim = q.shape(q->rank - 1);
    p.head_dim_v = v.shape(v->rank - 1);
    if (p.heads < 1) refuse("q.shape", shape_text(*q), "at least one head");
    if (p.kv_heads < 1 || p.heads % p.kv_heads != 0)
        refuse("q.shape", shape_text(*q), text("heads a multiple of k's ", p.kv_heads));
    q.check_columns(FLASHTILE_MAX_HEAD_DIM);
    v.check_columns(FLASHTILE_MAX_HEAD_DIM_V);
}

void check_packed_sizes(const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    p.total_q = q.shape(0);
    p.total_k = k.shape(0);
    k.check_shape({p.total_k, p.kv_heads, p.head_dim}, "(total_k, kv_heads, q's head_dim)");
    v.check_shape({p.total_k, p.kv_heads, p.head_dim_v}, "(total_k, kv_heads, head_dim_v)");
    check_cumulative_lengths(c);
}

void check_dense_sizes(const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    p.batch = q.shape(0);
    p.seqlen_q = q.shape(1);
    p.seqlen_k = k.shape(1);
    k.check_shape({p.batch, p.seqlen_k, p.kv_heads, p.head_dim}, "(batch, seqlen_k, kv_heads, q's head_dim)");
    v.check_shape({p.batch, p.seqlen_k, p.kv_heads, p.head_dim_v}, "(batch, seqlen_k, kv_heads, head_dim_v)");
    constexpr const char* unset = "-1 (unset) without cu_seqlens";
    if (c.inputs.max_seqlen_q != -1) refuse("max_seqlen_q", c.inputs.max_seqlen_q, unset);
    if (c.inputs.max_seqlen_k != -1) refuse("max_seqlen_k", c.inputs.max_seqlen_k, unset);
}

void check_queries_keys_values(CallUnderCheck& c) {
    Problem& p = c.call.problem;
    const TensorArgument q(c.inputs.q, "q"), k(c.inputs.k, "k"), v(c.inputs.v, "v");
    p.packed = c.inputs.cu_seqlens_q != nullptr || c.inputs.cu_seqlens_k != nullptr;
    p.cache = names_a_cache(c.inputs);
    for (const TensorArgument* t : {&q, &k, &v}) {
        t->require();
        t->check_form();
        if (p.cache && t != &q)
            t->check_rank(4, kCacheShape);
        else if (p.packed)
            t->check_rank(3, "(total, heads, head_dim)");
        else
            t->check_rank(4, "(batch, seqlen, heads, head_dim)");
        t->check_innermost();
        t->check_device(q);
    }
    c.call.execution.device_type = q->device_type;
    c.call.execution.device_id = q->device_id;
    check_dtypes(q, k, v, p);
    check_heads(q, k, v, p);
    if (!p.cache && c.inputs.prefix_groups != nullptr) refuse("prefix_groups", "given without block_table", "NULL");
    if (!p.cache && c.inputs.prefix_lengths != nullptr) refuse("prefix_lengths", "given without prefix_groups", "NULL");
    if (p.cache)
        check_cache_sizes(q, k, v, c);
    else if (p.packed)
        check_packed_sizes(q, k, v, c);
    else
        check_dense_sizes(q, k, v, c);
    check_count("batch x heads x the longer seqlen", {p.batch, p.heads, std::max(p.seqlen_q, p.seqlen_k)});
    c.call.operands.q = rows_operand(q);
    c.call.operands.k = rows_operand(k);
    c.call.operands.v = rows_operand(v);
    if (c.inputs.append != nullptr) return;  // check_append says what of these is written
    c.memory.reads(q), c.memory.reads(k), c.memory.reads(v);
}

}  // namespace

void check_inputs(const flashtile_inputs* given, CallUnderCheck& c) {
    const flashtile_inputs defaults = FLASHTILE_INPUTS_INIT;
    c.inputs = read_struct(given, defaults, "inputs");
    Problem& p = c.call.problem;
    check_queries_keys_values(c);
    check_used_lengths(c);
    check_input_scales(c);
    check_sequence_shards({c.inputs.q, "q"}, c);
    if (c.inputs.append != nullptr) check_append(c);
    check_length_values(c);
    settle_scale_and_window(c.options, p);
    if (p.dropout_threshold != 0) check_dropout_sizes(p);
    check_sequence_shard_values(c);
    check_score_tensors(c);
    check_functions(c);
    check_block_lists(c);
}

}  // namespace flashtile::api
