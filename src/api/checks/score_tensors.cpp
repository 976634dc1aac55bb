// score_tensors.cpp: see score_tensors.h.
#include "api/checks/score_tensors.h"

#include <array>
#include <string>

#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

void check_slopes(const TensorArgument& slopes, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    slopes.check_form();
    slopes.check_device({c.inputs.q, "q"});
    slopes.check_dtype(DType::fp32, "");
    const bool per_batch = slopes->rank != 1;
    if (per_batch)
        slopes.check_shape({p.batch, p.heads}, "(heads) or (batch, heads)");
    else
        slopes.check_shape({p.heads}, "(heads)");
    Operand& x = c.call.operands.slopes;
    x.data = slopes->data;
    x.dtype = DType::fp32;
    x.stride_batch = per_batch ? slopes.stride(0) : 0;
    x.stride_head = slopes.stride(slopes->rank - 1);
    x.stride_col = 0;
    p.alibi = true;
    c.memory.reads(slopes);
}

// The dtypes of tensors that are added to scores.
std::string score_dtypes(const Problem& p) {
    const bool of_inputs = p.dtype == DType::fp16 || p.dtype == DType::bf16;
    return of_inputs ? text(name(p.dtype), " or fp32") : "fp32";
}
void check_score_dtype(const TensorArgument& t, const Problem& p) {
    if (t.dtype() == DType::fp32 || (t.dtype() == p.dtype && p.dtype != DType::fp8_e4m3)) return;
    refuse(text(t.name(), ".dtype"), name(t.dtype()), score_dtypes(p));
}

// An empty tensor has no elements to point at, and nothing will look for any: the problem is without it.
void check_bias(const TensorArgument& bias, const std::array<std::int64_t, 4>& full, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    Operands& x = c.call.operands;
    bias.check_form();
    bias.check_device({c.inputs.q, "q"});
    check_score_dtype(bias, p);
    const auto shape = bias.check_broadcast(full);
    x.bias = broadcast_operand(bias);
    x.bias_batch = shape[0], x.bias_heads = shape[1], x.bias_rows = shape[2], x.bias_cols = shape[3];
    p.bias = x.bias ? bias.dtype() : DType::unset;
    c.memory.reads(bias);
}

void check_mask(const TensorArgument& mask, const std::array<std::int64_t, 4>& full, CallUnderCheck& c) {
    mask.check_form();
    mask.check_device({c.inputs.q, "q"});
    mask.check_dtype(DType::boolean, "");
    mask.check_broadcast(full);
    c.call.operands.mask = broadcast_operand(mask);
    c.call.problem.mask = static_cast<bool>(c.call.operands.mask);
    c.memory.reads(mask);
}

void check_tree_mask(const TensorArgument& tree, CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    if (p.seqlen_q > FLASHTILE_MAX_TREE)
        refuse("tree_mask", text("given with ", p.seqlen_q, " queries a sequence"),
               text("at most ", FLASHTILE_MAX_TREE));
    tree.check_form();
    tree.check_device({c.inputs.q, "q"});
    tree.check_dtype(DType::boolean, "");
    tree.check_rank(4, "(batch or 1, heads or 1, seqlen_q, seqlen_q)");
    const auto one_or = [&](int n, std::int64_t size) { return tree.shape(n) == 1 ? 1 : size; };
    tree.check_shape({one_or(0, p.batch), one_or(1, p.heads), p.seqlen_q, p.seqlen_q},
                     "(batch or 1, heads or 1, seqlen_q, seqlen_q)");
    c.call.operands.tree_mask = broadcast_operand(tree);
    c.call.problem.tree_mask = static_cast<bool>(c.call.operands.tree_mask);
    c.memory.reads(tree);
}

void check_sinks(const TensorArgument& sinks, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    sinks.check_form();
    sinks.check_device({c.inputs.q, "q"});
    check_score_dtype(sinks, p);
    sinks.check_shape({p.heads}, "(heads)");
    c.call.operands.sinks = {.data = sinks->data, .dtype = sinks.dtype(), .stride_head = sinks.stride(0)};
    p.sinks = sinks.dtype();
    c.memory.reads(sinks);
}

}  // namespace

void check_score_tensors(CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const std::array<std::int64_t, 4> full = {p.batch, p.heads, p.seqlen_q, p.seqlen_k};
    const TensorArgument slopes(c.inputs.alibi_slopes, "alibi_slopes"), bias(c.inputs.bias, "bias"),
        mask(c.inputs.mask, "mask"), tree(c.inputs.tree_mask, "tree_mask"), sinks(c.inputs.sinks, "sinks");
    if (slopes.present()) check_slopes(slopes, c);
    if (bias.present()) check_bias(bias, full, c);
    if (mask.present()) check_mask(mask, full, c);
    if (tree.present()) check_tree_mask(tree, c);
    if (sinks.present()) check_sinks(sinks, c);
}

}  // namespace flashtile::api
