// quantize.cpp: see quantize.h.
#include "api/checks/quantize.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/checks/memory_use.h"
#include "api/checks/options.h"
#include "api/checks/read_struct.h"
#include "api/checks/readable_lengths.h"
#include "api/checks/refuse.h"
#include "api/checks/rotary_table.h"
#include "api/checks/scales.h"

namespace flashtile::api {
namespace {

// A call while its tensors are checked, one group after the other.
struct QuantizeUnderCheck {
    QuantizeUnderCheck(const flashtile_options* options, const flashtile_quantize_tensors* given)
        : tensors(read_struct(given, flashtile_quantize_tensors FLASHTILE_QUANTIZE_TENSORS_INIT, "tensors")),
          x(tensors.x, "x") {
        call.execution = check_execution(read_options(options));
    }

    QuantizeCall call;
    flashtile_quantize_tensors tensors;  // complete
    TensorArgument x;                    // the others lie on its device
    MemoryUse memory;
};

void check_rows(QuantizeUnderCheck& c) {
    QuantizeProblem& p = c.call.problem;
    QuantizeOperands& o = c.call.operands;
    const TensorArgument &x = c.x, quantized(c.tensors.quantized, "quantized"), cu(c.tensors.cu_seqlens, "cu_seqlens");
    p.packed = cu.present();
    for (const TensorArgument* t : {&x, &quantized}) {
        t->require();
        t->check_form();
        t->check_rank(p.packed ? 3 : 4, p.packed ? "(total, heads, head_dim)" : "(batch, seqlen, heads, head_dim)");
        t->check_innermost();
        t->check_device(x);
    }
    c.call.execution.device_type = x->device_type;
    c.call.execution.device_id = x->device_id;
    x.check_float();
    quantized.check_dtype(DType::fp8_e4m3, "");
    quantized.check_shape(std::span(x->shape, static_cast<std::size_t>(x->rank)), "x's shape");
    p.dtype = x.dtype();
    p.heads = x.shape(x->rank - 2);
    p.head_dim = x.shape(x->rank - 1);
    if (p.heads < 1) refuse("x.shape", shape_text(*x), "at least one head");
    x.check_columns(FLASHTILE_MAX_HEAD_DIM);
    if (p.packed) {
        cu.check_form();
        cu.check_rank(1, "(batch + 1)");
        if (cu.shape(0) < 1) refuse("cu_seqlens.shape", shape_text(*cu), "batch + 1 entries");
        o.cu_seqlens = list_operand(cu, std::span(cu->shape, 1), "(batch + 1)", x);
        c.memory.reads(cu);
        p.batch = cu.shape(0) - 1;
        p.total = x.shape(0);
        check_count("total x heads", {p.total, p.heads});
    } else {
        p.batch = x.shape(0);
        p.seqlen = x.shape(1);
        check_count("batch x seqlen x heads", {p.batch, p.seqlen, p.heads});
        p.total = p.batch * p.seqlen;
    }
    o.x = rows_operand(x);
    o.quantized = rows_operand(quantized);
}

void check_scale(QuantizeUnderCheck& c) {
    QuantizeProblem& p = c.call.problem;
    const TensorArgument scale(c.tensors.scale, "scale");
    scale.require();
    p.scale_block = check_scale_block(c.tensors.scale_block, {&scale});
    const CheckedScales checked = check_scales(scale, p.scale_block,
                                               {.dtype = DType::fp8_e4m3,
                                                .batch = p.batch,
                                                .scale_heads = 0,
                                                .heads = p.heads,
                                                .outer = p.batch,
                                                .rows = p.seqlen,
                                                .packed = p.packed},
                                               c.x);
    p.scale = checked.kind;
    p.scale_heads = p.scale == ScaleKind::head ? scale.shape(1) : p.scale == ScaleKind::block ? p.heads : 1;
    c.call.operands.scale = checked.scales;
}

void check_rotation(QuantizeUnderCheck& c) {
    QuantizeProblem& p = c.call.problem;
    QuantizeOperands& o = c.call.operands;
    const flashtile_quantize_tensors& t = c.tensors;
    const TensorArgument cos(t.rotary_cos, "rotary_cos"), sin(t.rotary_sin, "rotary_sin"),
        offsets(t.rotary_offsets, "rotary_offsets"), positions(t.positions, "positions");
    if (!cos.present() && !sin.present()) {
        for (const TensorArgument* each : {&offsets, &positions})
            if (each->present()) refuse(each->name(), "given without rotary_cos and rotary_sin", "NULL");
        return;
    }
    check_rotary_table(cos, sin, c.x, p.head_dim, t.rotary_begin);
    c.memory.reads(cos), c.memory.reads(sin);
    p.table_dtype = cos.dtype();
    p.positions = cos.shape(0);
    p.pairs = cos.shape(1);
    p.rotary_begin = t.rotary_begin;
    p.interleaved = t.rotary_interleaved != 0;
    o.cos = cos->data;
    o.sin = sin->data;
    o.cos_stride = cos.stride(0);
    o.sin_stride = sin.stride(0);
    if (offsets.present()) {
        const std::int64_t shape[] = {p.batch};
        o.rotary_offsets = list_operand(offsets, shape, "(batch)", c.x);
        c.memory.reads(offsets);
    }
    if (positions.present()) {
        o.positions = list_operand(positions, {c.x->shape, static_cast<std::size_t>(c.x->rank - 2)}, "one a row", c.x);
        c.memory.reads(positions);
    }
    if (p.positions < p.seqlen && !o.positions)
        refuse("rotary_cos.shape", shape_text(*cos), text("at least ", p.seqlen, " positions, those of the rows"));
}

// The host can read them.
void check_values(const QuantizeCall& call) {
    const QuantizeProblem& p = call.problem;
    const QuantizeOperands& o = call.operands;
    const ReadableLengths cu(o.cu_seqlens, p.batch + 1, call.execution);
    if (cu) check_ascending(cu, p.batch, p.total, "cu_seqlens");
    if (cu && p.scale == ScaleKind::block) check_packed_blocks("scale", o.scale, cu, p.batch, p.scale_block);
    if (p.pairs == 0) return;
    const std::string allowed = text("0 to ", p.positions - 1, ", the positions of rotary_cos and rotary_sin");
    if (const ReadableLengths positions(o.positions, p.total, call.execution); positions) {
        for (std::int64_t row = 0; row < p.total; ++row)
            if (positions[row] < 0 || positions[row] >= p.positions)
                refuse(text("positions[", row, "]"), positions[row], allowed);
        return;
    }
    const ReadableLengths offsets(o.rotary_offsets, p.batch, call.execution);
    for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::int64_t first = offsets ? offsets[b] : 0, rows = cu ? cu[b + 1] - cu[b] : p.seqlen;
        if (rows > 0 && (first < 0 || first > p.positions - rows))
            refuse(offsets ? text("rotary_offsets[", b, "]") : text("the first position of sequence ", b), first,
                   text("0 to ", p.positions - rows, ": rotary_cos and rotary_sin have ", p.positions,
                        " positions for ", rows, " rows"));
    }
}

void check_tensors(QuantizeUnderCheck& c) {
    check_rows(c);
    check_scale(c);
    c.call.problem.hadamard = c.tensors.has_hadamard != 0;
    c.call.operands.hadamard_seed = c.tensors.hadamard_seed;
}

QuantizeCall finished(const QuantizeUnderCheck& c) {
    c.memory.check(c.call.execution);
    if (c.call.execution.device_type == FLASHTILE_CPU || c.call.execution.check_values) check_values(c.call);
    return c.call;
}

}  // namespace

QuantizeCall validate_quantize(const flashtile_options* options, const flashtile_quantize_tensors* given) {
    QuantizeUnderCheck c(options, given);
    check_tensors(c);
    check_rotation(c);
    c.call.problem.scale_given = c.tensors.scale_given != 0;
    c.memory.reads(c.x);
    c.memory.writes({c.tensors.quantized, "quantized"});
    const TensorArgument scale(c.tensors.scale, "scale");
    if (c.call.problem.scale_given)
        c.memory.reads(scale);
    else
        c.memory.writes(scale);
    return finished(c);
}

QuantizeCall validate_dequantize(const flashtile_options* options, const flashtile_quantize_tensors* given) {
    QuantizeUnderCheck c(options, given);
    check_tensors(c);
    for (const auto& [name, tensor] :
         {std::pair("rotary_cos", c.tensors.rotary_cos), std::pair("rotary_sin", c.tensors.rotary_sin),
          std::pair("rotary_offsets", c.tensors.rotary_offsets), std::pair("positions", c.tensors.positions)})
        if (tensor != nullptr) refuse(name, "given to dequantize", "NULL: rotation is not undone");
    c.call.problem.scale_given = true;
    c.memory.writes(c.x);
    c.memory.reads({c.tensors.quantized, "quantized"});
    c.memory.reads({c.tensors.scale, "scale"});
    return finished(c);
}

}  // namespace flashtile::api
