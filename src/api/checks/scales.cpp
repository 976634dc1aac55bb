// scales.cpp: see scales.h.
#include "api/checks/scales.h"

#include <algorithm>

#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

constexpr std::int64_t kBlocks[] = {64, 128};

std::int64_t blocks_of(std::int64_t rows, std::int64_t block) {
    return rows / block + (rows % block != 0);
}

// One for each sequence and key head.
CheckedScales check_head_scales(const TensorArgument& scale, const ScaledRows& of) {
    if (of.scale_heads != 0) {
        scale.check_shape({of.batch, of.scale_heads}, "() or (batch, kv_heads), without scale_block");
    } else {
        scale.check_rank(2, "(batch, a divisor of heads), without scale_block; or 0");
        const std::int64_t heads = scale.shape(1);
        if (heads < 1 || of.heads % heads != 0)
            refuse(text(scale.name(), ".shape"), shape_text(*scale), text("a divisor of the ", of.heads, " heads"));
        scale.check_shape({of.batch, heads}, "(batch, a divisor of heads)");
    }
    return {ScaleKind::head,
            {.data = static_cast<float*>(scale->data),
             .stride_batch = scale.stride(0),
             .stride_head = scale.stride(1),
             .blocks = 1}};
}

CheckedScales check_block_scales(const TensorArgument& scale, std::int64_t block, const ScaledRows& of) {
    if (of.packed) {
        scale.check_rank(2, "(heads, blocks of all sequences), as scale_block says for a packed tensor; or 0");
        const std::int64_t blocks = scale.shape(1);
        scale.check_shape({of.heads, blocks}, "(heads, blocks of all sequences)");
        return {ScaleKind::block,
                {.data = static_cast<float*>(scale->data),
                 .stride_head = scale.stride(0),
                 .stride_block = scale.stride(1),
                 .blocks = blocks}};
    }
    const std::int64_t blocks = blocks_of(of.rows, block);
    scale.check_rank(3, "(batch, heads, blocks), as scale_block says; or 0");
    scale.check_shape({of.outer, of.heads, blocks},
                      "(batch, or pages or rows of the cache; heads of the tensor; blocks of scale_block rows)");
    return {ScaleKind::block,
            {.data = static_cast<float*>(scale->data),
             .stride_batch = scale.stride(0),
             .stride_head = scale.stride(1),
             .stride_block = scale.stride(2),
             .blocks = blocks}};
}

}  // namespace

std::int64_t check_scale_block(std::int32_t block, std::initializer_list<const TensorArgument*> scales) {
    if (block != 0 && std::ranges::find(kBlocks, block) == std::end(kBlocks))
        refuse("scale_block", block, "0, 64 or 128");
    const bool has_blocks =
        std::ranges::any_of(scales, [](const TensorArgument* t) { return t->present() && (*t)->rank != 0; });
    if (block != 0 && !has_blocks) refuse("scale_block", block, "0, since no scale is for a block");
    return block;
}

CheckedScales check_scales(const TensorArgument& scale, std::int64_t block, const ScaledRows& of,
                           const TensorArgument& like) {
    if (!scale.present()) return {};
    if (of.dtype != DType::fp8_e4m3)
        refuse(scale.name(), text("given beside ", name(of.dtype), " elements"), "NULL: scales are of fp8_e4m3");
    scale.check_form();
    scale.check_dtype(DType::fp32, "");
    scale.check_device(like);
    if (scale->rank == 0) return {ScaleKind::tensor, {.data = static_cast<float*>(scale->data), .blocks = 1}};
    return block == 0 ? check_head_scales(scale, of) : check_block_scales(scale, block, of);
}

void check_packed_blocks(const char* name, const Scales& scales, const ReadableLengths& cu_seqlens, std::int64_t batch,
                         std::int64_t block) {
    std::int64_t blocks = 0;
    for (std::int64_t b = 0; b < batch; ++b) blocks += blocks_of(cu_seqlens[b + 1] - cu_seqlens[b], block);
    if (scales.blocks < blocks)
        refuse(text(name, ".shape"), text(scales.blocks, " blocks of a head"),
               text("at least ", blocks, ", what the sequences have of ", block, " rows each"));
}

void check_input_scales(CallUnderCheck& c) {
    Problem& p = c.call.problem;
    Operands& x = c.call.operands;
    const TensorArgument q(c.inputs.q, "q"), k(c.inputs.k, "k"), q_scale(c.inputs.q_scale, "q_scale"),
        k_scale(c.inputs.k_scale, "k_scale"), v_scale(c.inputs.v_scale, "v_scale");
    p.scale_block = check_scale_block(c.inputs.scale_block, {&q_scale, &k_scale, &v_scale});
    const ScaledRows queries{.dtype = p.dtype,
                             .batch = p.batch,
                             .scale_heads = p.kv_heads,
                             .heads = p.heads,
                             .outer = p.batch,
                             .rows = p.seqlen_q,
                             .packed = p.packed};
    const ScaledRows keys{.dtype = p.dtype_of_k(),
                          .batch = p.batch,
                          .scale_heads = p.kv_heads,
                          .heads = p.kv_heads,
                          .outer = p.cache ? p.pages : p.batch,
                          .rows = p.cache ? k.shape(1) : p.seqlen_k,
                          .packed = p.packed && !p.cache};
    const auto check = [&](const TensorArgument& scale, const ScaledRows& of, ScaleKind& kind, Scales& scales) {
        const CheckedScales checked = check_scales(scale, p.scale_block, of, q);
        kind = checked.kind;
        scales = checked.scales;
        if (scale.present()) c.memory.reads(scale);
    };
    check(q_scale, queries, p.q_scale, x.q_scale);
    check(k_scale, keys, p.k_scale, x.k_scale);
    check(v_scale, keys, p.v_scale, x.v_scale);
}

}  // namespace flashtile::api
