// outputs.cpp: see outputs.h.
#include "api/checks/outputs.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "api/checks/options.h"
#include "api/checks/read_struct.h"
#include "api/checks/refuse.h"
#include "api/checks/sequence_shards.h"
#include "functions/functions.h"

namespace flashtile::api {
namespace {

// (batch, rows, heads, d), of which a packed batch lacks the first and has all its rows in the second.
using Rows = std::array<std::int64_t, 4>;

Rows q_rows(const Problem& p, std::int64_t columns) {
    return {p.batch, p.rows_q(), p.heads, columns};
}
Rows k_rows(const Problem& p, std::int64_t columns) {
    return {p.batch, p.rows_k(), p.kv_heads, columns};
}

// Of any dtype.
Operand check_rows_form(const TensorArgument& t, const Rows& shape, const CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    t.require();
    t.check_form();
    t.check_device({c.inputs.q, "q"});
    if (p.packed)
        t.check_shape(std::span(shape).subspan(1), "(total, heads, head_dim)");
    else
        t.check_shape(shape, "(batch, seqlen, heads, head_dim)");
    t.check_innermost();
    return rows_operand(t);
}

Operand check_rows(const TensorArgument& t, const Rows& shape, const CallUnderCheck& c) {
    t.require();
    t.check_form();
    t.check_dtype(c.call.problem.dtype, ", that of q");
    return check_rows_form(t, shape, c);
}

// Forward's, which may be more precise than the inputs.
Operand check_out(const TensorArgument& out, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    out.require();
    out.check_form();
    const DType is = out.dtype();
    if (p.dtype == DType::fp8_e4m3)
        out.check_float();
    else if (is != p.dtype && is != DType::fp32)
        refuse("out.dtype", name(is), text(name(p.dtype), ", that of q, or fp32"));
    p.out_dtype = is != p.dtype ? is : DType::unset;
    return check_rows_form(out, q_rows(p, p.head_dim_v), c);
}

Operand check_lse(const TensorArgument& t, const CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    t.require();
    t.check_form();
    t.check_device({c.inputs.q, "q"});
    t.check_dtype(DType::fp32, "");
    if (p.packed)
        t.check_shape({p.heads, p.total_q}, "(heads, total_q)");
    else
        t.check_shape({p.batch, p.heads, p.seqlen_q}, "(batch, heads, seqlen_q)");
    t.check_innermost();
    return lse_operand(t);
}

Operand check_dbias(const TensorArgument& dbias, const CallUnderCheck& c) {
    const TensorArgument bias(c.inputs.bias, "bias");
    if (!bias.present()) refuse("dbias", "given without bias", "NULL");
    dbias.check_form();
    dbias.check_device({c.inputs.q, "q"});
    dbias.check_dtype(bias.dtype(), ", that of bias");
    dbias.check_shape(std::span(bias->shape, static_cast<std::size_t>(bias->rank)), "bias's shape");
    dbias.check_innermost();
    Operand operand = broadcast_operand(dbias);
    operand.stride_col = 1;
    return operand;
}

Operand check_dsinks(const TensorArgument& dsinks, const CallUnderCheck& c) {
    const TensorArgument sinks(c.inputs.sinks, "sinks");
    if (!sinks.present()) refuse("dsinks", "given without sinks", "NULL");
    dsinks.check_form();
    dsinks.check_device({c.inputs.q, "q"});
    if (dsinks.dtype() != c.call.problem.dtype && dsinks.dtype() != DType::fp32)
        refuse("dsinks.dtype", name(dsinks.dtype()), "fp32 or q's");
    dsinks.check_shape({c.call.problem.heads}, "(heads)");
    return {.data = dsinks->data, .dtype = dsinks.dtype(), .stride_head = dsinks.stride(0)};
}

// Their names must be those of function_tensors of floats.
void check_dtensors(const flashtile_gradients& g, CallUnderCheck& c) {
    const flashtile_inputs& inputs = c.inputs;
    if (g.dtensor_count < 0 || g.dtensor_count > inputs.function_tensor_count)
        refuse("dtensor_count", g.dtensor_count,
               text("0 to ", inputs.function_tensor_count, ", the number of function_tensors"));
    if (g.dtensor_count == 0) return;
    if (g.dtensors == nullptr) refuse("dtensors", "NULL", text(g.dtensor_count, " tensors"));
    if (!functions::functions_of(c.call.problem.functions).loads_are_differentiable())
        refuse("score_function",
               text("an expression that has over ", functions::kMostNodes,
                    " operations with its derivatives by function_tensors"),
               "a shorter one, or no dtensors");
    const std::span named(inputs.function_tensors, static_cast<std::size_t>(inputs.function_tensor_count));
    for (std::int64_t n = 0; n < g.dtensor_count; ++n) {
        const flashtile_named_tensor& given = g.dtensors[n];
        const std::string place = text("dtensors[", n, "].name");
        if (given.name == nullptr) refuse(place, "NULL", "a name of function_tensors");
        const auto found = std::ranges::find_if(
            named, [&](const flashtile_named_tensor& one) { return std::string_view(one.name) == given.name; });
        if (found == named.end()) refuse(place, text("'", given.name, "'"), "a name of function_tensors");
        functions::TensorGradient& to = c.call.operands.dtensors[found - named.begin()];
        if (to) refuse(place, text("'", given.name, "'"), "a name that no other gradient has");
        const TensorArgument tensor(&given.tensor, given.name), of(&found->tensor, given.name);
        const std::string name = text("d", given.name);
        if (of.dtype() != DType::fp32 && of.dtype() != DType::fp16 && of.dtype() != DType::bf16)
            refuse(place, text("'", given.name, "', which is ", flashtile::name(of.dtype())),
                   "the name of a tensor of floats");
        const TensorArgument written(&given.tensor, name.c_str());
        written.check_form();
        written.check_device({inputs.q, "q"});
        written.check_dtype(DType::fp32, "");
        written.check_shape(std::span(of->shape, static_cast<std::size_t>(of->rank)), "the tensor's shape");
        written.check_innermost();
        to.data = static_cast<float*>(tensor->data);
        for (int d = 0; d < tensor->rank; ++d) to.stride[d] = tensor.stride(d);
        c.memory.writes(tensor);
    }
}

}  // namespace

void refuse_what_forward_alone_takes(const CallUnderCheck& c) {
    const flashtile_inputs& inputs = c.inputs;
    for (const auto& [name, given] :
         {std::pair("block_table", inputs.block_table), std::pair("cache_batch_idx", inputs.cache_batch_idx),
          std::pair("first_k", inputs.first_k), std::pair("seqused_q", inputs.seqused_q),
          std::pair("tree_mask", inputs.tree_mask), std::pair("prefix_groups", inputs.prefix_groups)})
        if (given != nullptr) refuse(name, "given to backward", "NULL: only forward takes it");
    if (inputs.append != nullptr) refuse("append", "given to backward", "NULL: only forward takes it");
    if (c.call.problem.has_e4m3())
        throw Error(FLASHTILE_UNSUPPORTED,
                    "k.dtype is fp8_e4m3, which only forward takes: backward runs in bf16, on tensors that "
                    "flashtile_dequantize makes");
    if (c.call.problem.cache) refuse("cu_seqlens_k", "NULL", "a tensor beside cu_seqlens_q: backward takes no cache");
}

void check_forward_outputs(const flashtile_forward_outputs* given, CallUnderCheck& c) {
    const flashtile_forward_outputs defaults = FLASHTILE_FORWARD_OUTPUTS_INIT;
    const flashtile_forward_outputs outputs = read_struct(given, defaults, "outputs");
    const TensorArgument out(outputs.out, "out"), lse(outputs.lse, "lse");
    Operands& x = c.call.operands;
    x.out = check_out(out, c);
    c.memory.writes(out);
    if (lse.present()) {
        x.lse = check_lse(lse, c);
        c.memory.writes(lse);
    }
    c.memory.check(c.call.execution);
}

void check_gradients(const flashtile_gradients* given, CallUnderCheck& c) {
    const flashtile_gradients defaults = FLASHTILE_GRADIENTS_INIT;
    const flashtile_gradients g = read_struct(given, defaults, "gradients");
    refuse_what_forward_alone_takes(c);
    const TensorArgument out(g.out, "out"), dout(g.dout, "dout"), lse(g.lse, "lse"), dlse(g.dlse, "dlse"),
        dq(g.dq, "dq"), dk(g.dk, "dk"), dv(g.dv, "dv"), dbias(g.dbias, "dbias"), dsinks(g.dsinks, "dsinks");
    const Problem& p = c.call.problem;
    Operands& x = c.call.operands;
    x.out = check_rows(out, q_rows(p, p.head_dim_v), c);
    x.dout = check_rows(dout, q_rows(p, p.head_dim_v), c);
    x.lse = check_lse(lse, c);
    if (dlse.present()) x.dlse = check_lse(dlse, c);
    for (const TensorArgument* read : {&out, &dout, &lse, &dlse})
        if (read->present()) c.memory.reads(*read);
    x.dq = check_rows(dq, q_rows(p, p.head_dim), c);
    x.dk = check_rows(dk, k_rows(p, p.head_dim), c);
    x.dv = check_rows(dv, k_rows(p, p.head_dim_v), c);
    if (dbias.present()) x.dbias = check_dbias(dbias, c);
    if (dsinks.present()) x.dsinks = check_dsinks(dsinks, c);
    for (const TensorArgument* written : {&dq, &dk, &dv, &dbias, &dsinks})
        if (written->present()) c.memory.writes(*written);
    check_dtensors(g, c);
    c.memory.check(c.call.execution);
}

void check_keep(const flashtile_tensor* given, CallUnderCheck& c) {
    const TensorArgument keep(given, "keep");
    keep.require();
    keep.check_form();
    keep.check_dtype(DType::boolean, "");
    keep.check_rank(4, "(batch, heads, seqlen_q, seqlen_k)");
    keep.check_innermost();
    Problem& p = c.call.problem;
    p.batch = keep.shape(0), p.heads = keep.shape(1), p.seqlen_q = keep.shape(2), p.seqlen_k = keep.shape(3);
    p.kv_heads = p.heads;
    check_dropout_sizes(p);
    c.call.execution.device_type = keep->device_type;
    c.call.execution.device_id = keep->device_id;
    check_sequence_shards(keep, c);
    check_sequence_shard_values(c);
    c.call.operands.mask = broadcast_operand(keep);
    c.memory.writes(keep);
    c.memory.check(c.call.execution);
}

}  // namespace flashtile::api
