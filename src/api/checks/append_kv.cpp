// append_kv.cpp: see append_kv.h.
#include "api/checks/append_kv.h"

#include <algorithm>
#include <utility>

#include "api/checks/memory_use.h"
#include "api/checks/options.h"
#include "api/checks/read_struct.h"
#include "api/checks/refuse.h"
#include "api/checks/rotary_table.h"
#include "api/checks/scales.h"
#include "api/overlap.h"

namespace flashtile::api {
namespace {

constexpr const char* kCacheShape = "(num_pages, page_size, kv_heads, head_dim), or (batch, seqlen, ..)";

// A call while its tensors are checked, one group after the other.
struct AppendUnderCheck {
    AppendUnderCheck(const flashtile_append_tensors& given, const Problem& options, const Execution& how)
        : tensors(given), k(given.k, "k") {
        call.execution = how;
        call.problem.one_position = options.window_left < 0 && options.window_right < 0;
    }

    AppendCall call;
    flashtile_append_tensors tensors;  // complete
    TensorArgument k;                  // the others are of its dtype and lie on its device
    MemoryUse memory;
    bool q_aside = false;  // rotated queries go to memory that the call finds: q_out is q, for its form only

    void check_form(const TensorArgument& t, int rank, const char* meaning) const {
        t.require();
        t.check_form();
        t.check_rank(rank, meaning);
        t.check_innermost();
        t.check_device(k);
    }
    void check_like_k(const TensorArgument& t, int rank, const char* meaning) const {
        check_form(t, rank, meaning);
        t.check_dtype(k.dtype(), ", that of k (allowed there are fp32, fp16 and bf16)");
    }
};

// int32 or int64, of one shape. Rows of it lie one after the other.
Lengths check_list(AppendUnderCheck& c, const TensorArgument& t, std::span<const std::int64_t> shape,
                   const char* meaning) {
    if (!t.present()) return {};
    c.memory.reads(t);
    return list_operand(t, shape, meaning, c.k);
}
Lengths check_list(AppendUnderCheck& c, const TensorArgument& t, std::initializer_list<std::int64_t> shape,
                   const char* meaning) {
    return check_list(c, t, std::span(shape.begin(), shape.size()), meaning);
}

// (batch + 1)
Lengths check_cumulative(AppendUnderCheck& c, const TensorArgument& t) {
    c.check_form(t, 1, "(batch + 1)");
    if (t.shape(0) < 1) refuse(text(t.name(), ".shape"), shape_text(*t), "batch + 1 entries");
    return check_list(c, t, {t.shape(0)}, "(batch + 1)");
}

// The dimensions ahead of a tensor's heads: those of a list with one entry a row.
std::span<const std::int64_t> rows_shape(const TensorArgument& t) {
    return {t->shape, static_cast<std::size_t>(t->rank - 2)};
}

void check_new_rows(AppendUnderCheck& c) {
    AppendProblem& p = c.call.problem;
    AppendOperands& x = c.call.operands;
    const TensorArgument &k = c.k, v(c.tensors.v, "v"), cu(c.tensors.cu_seqlens_k_new, "cu_seqlens_k_new");
    p.packed_k = cu.present();
    if (p.packed_k)
        c.check_form(k, 3, "(total_new, kv_heads, head_dim)");
    else
        c.check_form(k, 4, "(batch, seqlen_new, kv_heads, head_dim)");
    p.dtype = k.dtype();
    k.check_float();
    const int heads = k->rank - 2;
    p.kv_heads = k.shape(heads);
    p.head_dim = k.shape(heads + 1);
    k.check_columns(kMostAppendedColumns);
    if (p.kv_heads < 1) refuse("k.shape", shape_text(*k), "at least one head");
    if (p.packed_k) {
        x.cu_seqlens_k_new = check_cumulative(c, cu);
        p.batch = cu.shape(0) - 1;
        p.rows_k = k.shape(0);
        check_count("total_new x kv_heads", {p.rows_k, p.kv_heads});
    } else {
        p.batch = k.shape(0);
        p.seqlen_k = k.shape(1);
        check_count("batch x seqlen_new x kv_heads", {p.batch, p.seqlen_k, p.kv_heads});
        p.rows_k = p.batch * p.seqlen_k;
    }
    x.k = rows_operand(k);
    c.memory.reads(k);
    if (v.present() != (c.tensors.v_cache != nullptr))
        refuse(v.present() ? "v_cache" : "v", "NULL",
               text("a tensor, since ", v.present() ? "v" : "v_cache", " is given, or both NULL"));
    if (!v.present()) return;
    c.check_like_k(v, k->rank, "that of k");
    v.check_columns(kMostAppendedColumns);
    p.head_dim_v = v.shape(heads + 1);
    if (p.packed_k)
        v.check_shape({p.rows_k, p.kv_heads, p.head_dim_v}, "(total_new, kv_heads, head_dim_v)");
    else
        v.check_shape({p.batch, p.seqlen_k, p.kv_heads, p.head_dim_v}, "(batch, seqlen_new, kv_heads, head_dim_v)");
    x.v = rows_operand(v);
    c.memory.reads(v);
}

void check_block_table(AppendUnderCheck& c, const TensorArgument& table) {
    AppendProblem& p = c.call.problem;
    c.check_form(table, 2, "(batch, max_pages)");
    table.check_dtype(DType::int32, "");
    p.max_pages = table.shape(1);
    table.check_shape({p.batch, p.max_pages}, "(batch, max_pages)");
    check_count("max_pages x page_size", {p.max_pages, p.page_size});
    c.call.operands.block_table = static_cast<const std::int32_t*>(table->data);
    c.call.operands.block_table_stride = table.stride(0);
    c.memory.reads(table);
}

// Which rows of the cache the new rows go to.
void check_places(AppendUnderCheck& c, const TensorArgument& k_cache) {
    AppendProblem& p = c.call.problem;
    AppendOperands& x = c.call.operands;
    const TensorArgument table(c.tensors.block_table, "block_table"), slots(c.tensors.slots, "slots"),
        rows(c.tensors.cache_batch_idx, "cache_batch_idx"), lengths(c.tensors.cache_seqlens, "cache_seqlens");
    if (table.present() + slots.present() + rows.present() > 1)
        refuse(slots.present() ? "slots" : "cache_batch_idx",
               text("given with ", table.present() ? "block_table" : "cache_batch_idx"),
               "one of block_table, slots and cache_batch_idx");
    p.paged = table.present() || slots.present();
    if (p.paged && p.page_size < 1) refuse("k_cache.shape", shape_text(*k_cache), "a page_size from 1");
    if (table.present()) check_block_table(c, table);
    x.cache_batch_idx = check_list(c, rows, {p.batch}, "(batch)");
    x.cache_seqlens = check_list(c, lengths, {p.batch}, "(batch)");
    if (slots.present()) {
        slots.check_form();
        slots.check_dtype(DType::int64, "");
        x.slots = check_list(c, slots, rows_shape(c.k), "one a new row");
        return;
    }
    if (!lengths.present()) refuse("cache_seqlens", "NULL", "the keys of each sequence so far (or slots)");
    if (!p.paged && !rows.present() && p.pages < p.batch)
        refuse("k_cache.shape", shape_text(*k_cache), text("at least ", p.batch, " rows, that of the batch"));
    if (p.seqlen_k > p.capacity())
        refuse("k.shape", shape_text(*c.k),
               text("at most ", p.capacity(), " new rows a sequence, which is all that the cache has for it"));
}

// Of a cache of e4m3.
void check_append_scales(AppendUnderCheck& c) {
    AppendProblem& p = c.call.problem;
    const TensorArgument k_cache(c.tensors.k_cache, "k_cache"), k_scale(c.tensors.k_scale, "k_scale"),
        v_scale(c.tensors.v_scale, "v_scale");
    p.scale_block = check_scale_block(c.tensors.scale_block, {&k_scale, &v_scale});
    const ScaledRows rows{.dtype = k_cache.dtype(),
                          .batch = p.batch,
                          .scale_heads = p.kv_heads,
                          .heads = p.kv_heads,
                          .outer = p.pages,
                          .rows = p.page_size,
                          .packed = false};
    const CheckedScales of_k = check_scales(k_scale, p.scale_block, rows, c.k),
                        of_v = check_scales(v_scale, p.scale_block, rows, c.k);
    p.k_scale = of_k.kind, c.call.operands.k_scale = of_k.scales;
    p.v_scale = of_v.kind, c.call.operands.v_scale = of_v.scales;
    for (const TensorArgument* scale : {&k_scale, &v_scale})
        if (scale->present()) c.memory.reads(*scale);
}

void check_caches(AppendUnderCheck& c) {
    AppendProblem& p = c.call.problem;
    AppendOperands& x = c.call.operands;
    const TensorArgument k_cache(c.tensors.k_cache, "k_cache"), v_cache(c.tensors.v_cache, "v_cache");
    for (const TensorArgument* cache : {&k_cache, &v_cache}) {
        if (cache == &v_cache && !v_cache.present()) break;
        c.check_form(*cache, 4, kCacheShape);
    }
    if (k_cache.dtype() == DType::fp8_e4m3)
        p.cache_dtype = DType::fp8_e4m3;
    else
        k_cache.check_dtype(p.dtype, ", that of k (allowed there are fp32, fp16 and bf16), or fp8_e4m3");
    if (v_cache.present()) v_cache.check_dtype(k_cache.dtype(), ", that of k_cache");
    p.pages = k_cache.shape(0);
    p.page_size = k_cache.shape(1);
    check_count("num_pages x page_size x kv_heads", {p.pages, p.page_size, p.kv_heads});
    k_cache.check_shape({p.pages, p.page_size, p.kv_heads, p.head_dim}, kCacheShape);
    if (v_cache.present()) v_cache.check_shape({p.pages, p.page_size, p.kv_heads, p.head_dim_v}, kCacheShape);
    check_places(c, k_cache);
    check_append_scales(c);
    x.k_cache = rows_operand(k_cache);
    c.memory.writes(k_cache);
    if (!v_cache.present()) return;
    x.v_cache = rows_operand(v_cache);
    c.memory.writes(v_cache);
}

void check_table(AppendUnderCheck& c, const TensorArgument& cos, const TensorArgument& sin) {
    AppendProblem& p = c.call.problem;
    check_rotary_table(cos, sin, c.k, p.head_dim, c.tensors.rotary_begin);
    p.table_dtype = cos.dtype();
    p.positions = cos.shape(0);
    p.pairs = cos.shape(1);
    p.rotary_begin = c.tensors.rotary_begin;
    p.interleaved = c.tensors.rotary_interleaved != 0;
    c.call.operands.cos = cos->data;
    c.call.operands.sin = sin->data;
    c.call.operands.cos_stride = cos.stride(0);
    c.call.operands.sin_stride = sin.stride(0);
    c.memory.reads(cos), c.memory.reads(sin);
}

void check_queries(AppendUnderCheck& c) {
    AppendProblem& p = c.call.problem;
    AppendOperands& x = c.call.operands;
    const TensorArgument q(c.tensors.q, "q"), q_out(c.tensors.q_out, "q_out"),
        cu(c.tensors.cu_seqlens_q, "cu_seqlens_q"), positions(c.tensors.positions_q, "positions_q");
    if (!q.present()) {
        for (const TensorArgument* t : {&q_out, &cu, &positions})
            if (t->present()) refuse(t->name(), "given without q", "NULL");
        return;
    }
    p.packed_q = cu.present();
    if (p.packed_q) {
        c.check_like_k(q, 3, "(total_q, heads, head_dim)");
        x.cu_seqlens_q = check_cumulative(c, cu);
        if (cu.shape(0) != p.batch + 1)
            refuse("cu_seqlens_q.shape", shape_text(*cu), text("batch + 1 = ", p.batch + 1, " entries"));
        p.rows_q = q.shape(0);
    } else {
        c.check_like_k(q, 4, "(batch, seqlen_q, heads, head_dim)");
        p.seqlen_q = q.shape(1);
        check_count("batch x seqlen_q x heads", {p.batch, p.seqlen_q, q.shape(2)});
        p.rows_q = p.batch * p.seqlen_q;
    }
    p.heads = q.shape(q->rank - 2);
    if (p.heads < 1) refuse("q.shape", shape_text(*q), "at least one head");
    check_count("total_q x heads", {p.rows_q, p.heads});
    if (p.packed_q)
        q.check_shape({p.rows_q, p.heads, p.head_dim}, "(total_q, heads, k's head_dim)");
    else
        q.check_shape({p.batch, p.seqlen_q, p.heads, p.head_dim}, "(batch, seqlen_q, heads, k's head_dim)");
    c.check_like_k(q_out, q->rank, "that of q");
    q_out.check_shape({q->shape, static_cast<std::size_t>(q->rank)}, "q's shape");
    x.q = rows_operand(q);
    x.q_out = rows_operand(q_out);
    if (c.q_aside || !same_elements(*q, *q_out)) c.memory.reads(q);
    if (c.q_aside)
        x.q_out.data = nullptr;
    else
        c.memory.writes(q_out);

    x.positions_q = check_list(c, positions, rows_shape(q), "one a query");
    if (positions.present() || !x.positions) return;
    if (p.packed_q != p.packed_k || !std::ranges::equal(rows_shape(q), rows_shape(c.k)))
        refuse("positions_q", "NULL", "one a query, since q has other rows than k, whose positions are given");
    x.positions_q = x.positions;
}

void check_rotation(AppendUnderCheck& c) {
    AppendProblem& p = c.call.problem;
    AppendOperands& x = c.call.operands;
    const flashtile_append_tensors& t = c.tensors;
    const TensorArgument cos(t.rotary_cos, "rotary_cos"), sin(t.rotary_sin, "rotary_sin"),
        offsets(t.rotary_offsets, "rotary_offsets"), positions(t.positions, "positions"), q(t.q, "q");
    if (!cos.present() && !sin.present()) {
        for (const TensorArgument* each : {&offsets, &positions, &q})
            if (each->present()) refuse(each->name(), "given without rotary_cos and rotary_sin", "NULL");
        check_queries(c);
        return;
    }
    check_table(c, cos, sin);
    x.rotary_offsets = check_list(c, offsets, {p.batch}, "(batch)");
    x.positions = check_list(c, positions, rows_shape(c.k), "one a new row");
    if (!x.cache_seqlens && !x.rotary_offsets && !x.positions)
        refuse("cache_seqlens", "NULL with slots and rotary_cos",
               "that, rotary_offsets or positions, by which keys are rotated");
    check_queries(c);
    const std::int64_t longest =
        std::max(x.positions ? 0 : p.seqlen_k,
                 x.positions_q ? 0 : std::min<std::int64_t>(p.seqlen_q, p.one_position ? 1 : p.seqlen_q));
    if (p.positions < longest)
        refuse("rotary_cos.shape", shape_text(*cos), text("at least ", longest, " positions, those of the new rows"));
}

void check_tensors(AppendUnderCheck& c) {
    check_new_rows(c);
    c.call.execution.device_type = c.k->device_type;
    c.call.execution.device_id = c.k->device_id;
    check_caches(c);
    check_rotation(c);
}

// What forward's inputs say of the append, in place of what is not to be given there.
void complete(flashtile_append_tensors& t, const flashtile_inputs& inputs) {
    for (const auto& [name, given] :
         {std::pair("k_cache", t.k_cache), std::pair("v_cache", t.v_cache), std::pair("block_table", t.block_table),
          std::pair("cache_batch_idx", t.cache_batch_idx), std::pair("cache_seqlens", t.cache_seqlens),
          std::pair("q", t.q), std::pair("cu_seqlens_q", t.cu_seqlens_q), std::pair("k_scale", t.k_scale),
          std::pair("v_scale", t.v_scale)})
        if (given != nullptr) refuse(name, "given", "NULL: forward's inputs say it");
    t.k_cache = inputs.k;
    if (t.v != nullptr) t.v_cache = inputs.v;
    if (t.slots == nullptr) {
        t.block_table = inputs.block_table;
        t.cache_batch_idx = inputs.cache_batch_idx;
    }
    t.cache_seqlens = inputs.seqused_k;
    if (t.scale_block != 0) refuse("scale_block", t.scale_block, "0: forward's inputs say it");
    t.k_scale = inputs.k_scale;
    if (t.v != nullptr) t.v_scale = inputs.v_scale;
    if (t.k_scale != nullptr || t.v_scale != nullptr) t.scale_block = inputs.scale_block;
    if (t.rotary_cos == nullptr && t.rotary_sin == nullptr) return;
    t.q = inputs.q;
    t.cu_seqlens_q = inputs.cu_seqlens_q;
}

void check_in_forward(CallUnderCheck& c) {
    const flashtile_append_tensors defaults = FLASHTILE_APPEND_TENSORS_INIT;
    flashtile_append_tensors tensors = read_struct(*c.inputs.append, defaults, "tensors");
    complete(tensors, c.inputs);
    AppendUnderCheck append(tensors, c.call.problem, c.call.execution);
    if (tensors.q != nullptr && tensors.q_out == nullptr) {
        append.q_aside = true;
        append.tensors.q_out = tensors.q;
    }
    append.k.require();
    append.k.check_form();
    append.k.check_device({c.inputs.q, "q"});
    check_tensors(append);
    Problem& p = c.call.problem;
    if (append.call.problem.batch != p.batch)
        refuse(append.call.problem.packed_k ? "cu_seqlens_k_new.shape" : "k.shape",
               text("of a batch of ", append.call.problem.batch), text("q's batch, ", p.batch));
    p.appends = true;
    p.rotates_q_aside = append.q_aside;
    p.append = append.call.problem;
    c.call.operands.append = append.call.operands;
    c.memory.add(append.memory);
    const TensorArgument q(c.inputs.q, "q"), v(c.inputs.v, "v");
    if (tensors.q == nullptr) c.memory.reads(q);
    // Without new values v is a view of the cache's keys, or else memory of its own.
    if (tensors.v == nullptr && !overlap(*c.inputs.v, *c.inputs.k)) c.memory.reads(v);
}

}  // namespace

void check_append(CallUnderCheck& c) {
    if (c.inputs.seqused_k == nullptr) refuse("seqused_k", "NULL", "with append the keys of each sequence before it");
    naming_append([&] { check_in_forward(c); });
}

AppendCall validate_append(const flashtile_options* given_options, const flashtile_append_tensors* given) {
    const flashtile_options options = read_options(given_options);
    const Problem masks = check_problem_options(options);
    const Execution execution = check_execution(options);
    const flashtile_append_tensors defaults = FLASHTILE_APPEND_TENSORS_INIT;
    AppendUnderCheck c(read_struct(given, defaults, "tensors"), masks, execution);
    check_tensors(c);
    c.memory.check(c.call.execution);
    if (c.call.execution.device_type == FLASHTILE_CPU || c.call.execution.check_values)
        check_append_values(c.call.problem, c.call.operands, c.call.execution);
    return c.call;
}

}  // namespace flashtile::api
