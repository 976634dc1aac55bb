// merge.cpp: see merge.h.
#include "api/checks/merge.h"

#include <algorithm>
#include <span>

#include "api/checks/options.h"
#include "api/checks/read_struct.h"
#include "api/checks/refuse.h"
#include "api/checks/tensor_argument.h"
#include "api/overlap.h"

namespace flashtile::api {
namespace {

// A tensor of parts without its first dimension: part n.
flashtile_tensor part(const TensorArgument& parts, std::int64_t n) {
    flashtile_tensor view = *parts;
    view.rank = parts->rank - 1;
    std::copy_n(parts->shape + 1, view.rank, view.shape);
    std::copy_n(parts->stride + 1, view.rank, view.stride);
    if (view.data != nullptr) view.data = static_cast<char*>(view.data) + n * parts.stride(0) * size_of(parts.dtype());
    // Where there is no part, its rows are looked for in no memory.
    if (parts.shape(0) == 0) std::fill_n(view.stride, view.rank, 0);
    return view;
}

// Each part is where the output is, element for element, or elsewhere altogether.
void check_in_place(const TensorArgument& out, const TensorArgument& parts) {
    if (!overlap(*out, *parts)) return;
    for (std::int64_t n = 0; n < parts.shape(0); ++n) {
        const flashtile_tensor view = part(parts, n);
        if (!same_elements(*out, view) && overlap(*out, view))
            refuse(out.name(), text("overlapping ", parts.name(), "[", n, "]"),
                   text("memory of its own, or that of one of ", parts.name(), " with its strides and dtype"));
    }
}

void check_apart(const TensorArgument& out, const TensorArgument& other) {
    if (overlap(*out, *other)) refuse(out.name(), text("overlapping ", other.name()), "memory of its own");
}

void check_distinct(const TensorArgument& out) {
    if (overlaps_itself(*out))
        refuse(text(out.name(), ".stride"), "such that elements share memory", "distinct elements");
}

void check_sizes(const TensorArgument& outs, MergeProblem& p) {
    const int lead = outs->rank - 4;  // 1 where there is a batch
    p.dtype = outs.dtype();
    p.parts = outs.shape(0);
    p.batch = lead != 0 ? outs.shape(1) : 1;
    p.seqlen = outs.shape(lead + 1);
    p.heads = outs.shape(lead + 2);
    p.head_dim = outs.shape(lead + 3);
    outs.check_columns(FLASHTILE_MAX_HEAD_DIM_V);
    check_count("n x batch x seqlen x heads", {p.parts, p.batch, p.seqlen, p.heads});
}

// The shape that lses must have.
void check_lses(const TensorArgument& lses, const TensorArgument& outs, const MergeProblem& p) {
    lses.check_dtype(DType::fp32, "");
    if (outs->rank == 5)
        lses.check_shape({p.parts, p.batch, p.heads, p.seqlen}, "(n, batch, heads, seqlen)");
    else
        lses.check_shape({p.parts, p.heads, p.seqlen}, "(n, heads, total)");
}

void check_form(const TensorArgument& t, const TensorArgument& outs) {
    t.require();
    t.check_form();
    t.check_innermost();
    t.check_device(outs);
}

void check_output_shape(const TensorArgument& out, const TensorArgument& parts) {
    const std::span shape(parts->shape, static_cast<std::size_t>(parts->rank));
    out.check_shape(shape.subspan(1), text(parts.name(), "' shape without n").c_str());
}

}  // namespace

MergeCall validate_merge(const flashtile_options* options, const flashtile_merge_tensors* given) {
    MergeCall call;
    call.execution = check_execution(read_options(options));
    const flashtile_merge_tensors defaults = FLASHTILE_MERGE_TENSORS_INIT;
    const flashtile_merge_tensors tensors = read_struct(given, defaults, "tensors");
    const TensorArgument outs(tensors.outs, "outs"), lses(tensors.lses, "lses"), out(tensors.out, "out"),
        lse(tensors.lse, "lse");
    outs.require();
    if (outs->rank != 4) outs.check_rank(5, "(n, batch, seqlen, heads, head_dim), or 4 when packed");
    check_form(outs, outs);
    outs.check_float();
    MergeProblem& p = call.problem;
    check_sizes(outs, p);
    check_form(lses, outs);
    check_lses(lses, outs, p);
    check_form(out, outs);
    out.check_float();
    check_output_shape(out, outs);
    p.out_dtype = out.dtype();
    if (lse.present()) {
        check_form(lse, outs);
        lse.check_dtype(DType::fp32, "");
        check_output_shape(lse, lses);
    }

    check_distinct(out);
    check_in_place(out, outs);
    check_apart(out, lses);
    if (lse.present()) {
        check_distinct(lse);
        check_in_place(lse, lses);
        check_apart(lse, outs);
        check_apart(lse, out);
    }

    const flashtile_tensor first_out = part(outs, 0), first_lse = part(lses, 0);
    MergeOperands& x = call.operands;
    x.outs = rows_operand({&first_out, "outs"});
    x.lses = lse_operand({&first_lse, "lses"});
    x.outs_stride_part = outs.stride(0);
    x.lses_stride_part = lses.stride(0);
    x.out = rows_operand(out);
    if (lse.present()) x.lse = lse_operand(lse);
    call.execution.device_type = outs->device_type;
    call.execution.device_id = outs->device_id;
    return call;
}

}  // namespace flashtile::api
