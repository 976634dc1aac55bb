// sequence_lengths.cpp: see sequence_lengths.h.
#include "api/checks/sequence_lengths.h"

#include "api/checks/append_kv.h"
#include "api/checks/cache.h"
#include "api/checks/readable_lengths.h"
#include "api/checks/refuse.h"
#include "api/checks/scales.h"

namespace flashtile::api {
namespace {

std::int64_t longest(std::int64_t given, const char* name) {
    if (given < 0) refuse(name, given, "the longest sequence's length (packed batches need it)");
    return given;
}

Lengths lengths_of(const TensorArgument& t) {
    return {t->data, t.dtype() == DType::int64};
}

// What cu_seqlens_q or cu_seqlens_k has to agree with.
struct Bounds {
    const char* name;
    std::int64_t total;
    const char* longest_name;
    std::int64_t longest;
};

void check_cumulative(const ReadableLengths& cu, std::int64_t batch, const Bounds& of) {
    check_ascending(cu, batch, of.total, of.name);
    for (std::int64_t b = 0; b < batch; ++b)
        if (cu[b + 1] - cu[b] > of.longest)
            refuse(of.longest_name, of.longest, text("at least the length of sequence ", b, ", ", cu[b + 1] - cu[b]));
}

void check_used(const char* name, const ReadableLengths& used, std::int64_t b, std::int64_t seqlen) {
    if (used && (used[b] < 0 || used[b] > seqlen))
        refuse(text(name, "[", b, "]"), used[b], text("0 to the sequence's ", seqlen));
}

void check_cumulative_form(const TensorArgument& t, const CallUnderCheck& c) {
    t.require();
    t.check_form();
    t.check_device({c.inputs.q, "q"});
    t.check_rank(1, "(batch + 1)");
    t.check_innermost();
    t.check_integer();
    if (t.shape(0) < 1) refuse(text(t.name(), ".shape"), shape_text(*t), "batch + 1 entries");
}

// A list of one int32 for each sequence.
Lengths check_used_list(const TensorArgument& list, CallUnderCheck& c) {
    if (!list.present()) return {};
    return check_int32_list(list, c.call.problem.batch, "(batch)", c);
}

// Of each query, beside a tree.
void check_positions(const TensorArgument& positions, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    if (c.inputs.tree_mask == nullptr) refuse("positions", "given without tree_mask", "NULL");
    positions.check_form();
    positions.check_device({c.inputs.q, "q"});
    positions.check_dtype(DType::int32, "");
    if (p.packed)
        positions.check_shape({p.total_q}, "(total_q)");
    else
        positions.check_shape({p.batch, p.seqlen_q}, "(batch, seqlen_q)");
    positions.check_innermost();
    if (p.diagonal != 0) refuse("diagonal", p.diagonal, "0 with positions, which say where queries are");
    p.positions = true;
    c.call.operands.positions = static_cast<const std::int32_t*>(positions->data);
    c.call.operands.positions_stride = p.packed ? 0 : positions.stride(0);
    c.memory.reads(positions);
}

// Of the queries that seqused_q leaves: the others' positions are not read.
void check_position_values(const ReadableLengths& cu_q, const ReadableLengths& used_q, const CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const std::int64_t stride = c.call.operands.positions_stride;
    const bool none = p.batch == 0 || p.rows_q() == 0;
    const ReadableLengths positions({c.call.operands.positions, false}, none ? 0 : (p.runs() - 1) * stride + p.rows_q(),
                                    c.call.execution);
    for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::int64_t first = cu_q ? cu_q[b] : 0, length = cu_q ? cu_q[b + 1] - first : p.seqlen_q;
        for (std::int64_t i = 0; i < (used_q ? used_q[b] : length); ++i)
            if (const std::int64_t at = positions[b * stride + first + i]; at < 0)
                refuse(cu_q ? text("positions[", first + i, "]") : text("positions[", b, ", ", i, "]"), at,
                       "0 or more");
    }
}

}  // namespace

Lengths check_int32_list(const TensorArgument& list, std::int64_t count, const char* meaning, CallUnderCheck& c) {
    list.check_form();
    list.check_device({c.inputs.q, "q"});
    list.check_dtype(DType::int32, "");
    list.check_shape({count}, meaning);
    list.check_innermost();
    c.memory.reads(list);
    return lengths_of(list);
}

void check_cumulative_queries(CallUnderCheck& c) {
    Problem& p = c.call.problem;
    const TensorArgument cu_q(c.inputs.cu_seqlens_q, "cu_seqlens_q");
    check_cumulative_form(cu_q, c);
    p.batch = cu_q.shape(0) - 1;
    p.seqlen_q = longest(c.inputs.max_seqlen_q, "max_seqlen_q");
    c.call.operands.cu_seqlens_q = lengths_of(cu_q);
    c.memory.reads(cu_q);
}

void check_cumulative_lengths(CallUnderCheck& c) {
    Problem& p = c.call.problem;
    check_cumulative_queries(c);
    const TensorArgument cu_k(c.inputs.cu_seqlens_k, "cu_seqlens_k");
    check_cumulative_form(cu_k, c);
    cu_k.check_shape({p.batch + 1}, "(batch + 1), that of cu_seqlens_q");
    p.seqlen_k = longest(c.inputs.max_seqlen_k, "max_seqlen_k");
    c.call.operands.cu_seqlens_k = lengths_of(cu_k);
    c.memory.reads(cu_k);
}

void check_used_lengths(CallUnderCheck& c) {
    Operands& x = c.call.operands;
    x.seqused_k = check_used_list({c.inputs.seqused_k, "seqused_k"}, c);
    x.seqused_q = check_used_list({c.inputs.seqused_q, "seqused_q"}, c);
    x.first_k = check_used_list({c.inputs.first_k, "first_k"}, c);
    c.call.problem.used_q = static_cast<bool>(x.seqused_q);
    c.call.problem.first_k = static_cast<bool>(x.first_k);
    if (const TensorArgument positions(c.inputs.positions, "positions"); positions.present())
        check_positions(positions, c);
}

void check_length_values(CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const Operands& x = c.call.operands;
    const Execution& execution = c.call.execution;
    const bool readable = execution.device_type == FLASHTILE_CPU || execution.check_values;
    if (!c.tensors_have_memory || !readable) return;
    const ReadableLengths cu_q(x.cu_seqlens_q, p.batch + 1, execution), cu_k(x.cu_seqlens_k, p.batch + 1, execution),
        used_q(x.seqused_q, p.batch, execution), used_k(x.seqused_k, p.batch, execution),
        first_k(x.first_k, p.batch, execution);
    if (p.appends) naming_append([&] { check_append_values(p.append, x.append, execution); });
    const NewKeys new_k(p.append, x.append, execution);
    if (cu_q) check_cumulative(cu_q, p.batch, {"cu_seqlens_q", p.total_q, "max_seqlen_q", p.seqlen_q});
    if (cu_k) check_cumulative(cu_k, p.batch, {"cu_seqlens_k", p.total_k, "max_seqlen_k", p.seqlen_k});
    if (cu_q && p.q_scale == ScaleKind::block) check_packed_blocks("q_scale", x.q_scale, cu_q, p.batch, p.scale_block);
    if (cu_k && p.k_scale == ScaleKind::block) check_packed_blocks("k_scale", x.k_scale, cu_k, p.batch, p.scale_block);
    if (cu_k && p.v_scale == ScaleKind::block) check_packed_blocks("v_scale", x.v_scale, cu_k, p.batch, p.scale_block);
    const bool lists = used_q || used_k || first_k || p.cache;
    for (std::int64_t b = 0; lists && b < p.batch; ++b) {
        check_used("seqused_q", used_q, b, cu_q ? cu_q[b + 1] - cu_q[b] : p.seqlen_q);
        const std::int64_t seqlen_k = cu_k ? cu_k[b + 1] - cu_k[b] : p.seqlen_k;
        check_used("seqused_k", used_k, b, seqlen_k - new_k.of(b));
        if (first_k && first_k[b] < 0) refuse(text("first_k[", b, "]"), first_k[b], "0 or more");
    }
    if (p.positions) check_position_values(cu_q, used_q, c);
    if (p.cache) check_cache_values(used_k, new_k, c);
}

}  // namespace flashtile::api
