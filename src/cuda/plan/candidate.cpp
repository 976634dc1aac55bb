// candidate.cpp: see candidate.h.
#include "cuda/plan/candidate.h"

#include <algorithm>

#include "functions/functions.h"

namespace flashtile::gpu {
namespace {

constexpr float kLeastCap = 1e-30f, kMostCap = 1e30f;  // softcap in units of scale

// Whether places and lengths, of the whole problem where this one is a shard of it, are near with what a tile
// has beyond a sequence's end.
bool has_near_positions(const Problem& p) {
    constexpr std::int64_t kTile = 1024;
    const auto near = [](std::int64_t origin, std::int64_t count) {
        return origin >= 0 && count < kNearPositions - kTile && origin < kNearPositions - kTile - count;
    };
    return !p.origins_i && !p.origins_j && near(p.origin_i, p.seqlen_q) && near(p.origin_j, p.seqlen_k) &&
           near(0, p.seqlen_q) && near(0, p.seqlen_k) && near(p.origin_b, p.batch) && near(p.origin_h, p.heads);
}

}  // namespace

Element element_of(DType dtype) {
    switch (dtype) {
        case DType::fp32:
            return Element::fp32;
        case DType::fp16:
            return Element::fp16;
        case DType::fp8_e4m3:
            return Element::e4m3;
        default:
            return Element::bf16;
    }
}

Question question_of(const Problem& p, const Access& access, const DeviceFacts& device) {
    KernelConfig c;
    // Where no kernel of its own serves e4m3, bf16 holds its values exactly.
    c.converts_q = p.dtype == DType::fp8_e4m3;
    c.converts_kv = p.dtype_of_k() == DType::fp8_e4m3;
    c.element = c.converts_q ? Element::bf16 : element_of(p.dtype);
    if (p.out_dtype != DType::unset) c.out_element = element_of(p.out_dtype);
    for (const ScaleKind kind : {p.q_scale, p.k_scale, p.v_scale})
        c.scale_blocks = c.scale_blocks || kind == ScaleKind::block;
    c.head_dim = static_cast<int>(p.head_dim);
    c.head_dim_v = static_cast<int>(p.head_dim_v);
    c.vector_bytes = access.vector_bytes;
    c.band = p.window_left >= 0 || p.window_right >= 0 || p.attention_chunk != 0;
    c.window = p.window_left >= 0 || p.attention_chunk != 0;
    c.packed = p.packed;
    c.seqused = access.seqused;
    c.seqused_q = p.used_q;
    c.cache = p.cache;
    c.paged = p.page_size != 0;
    c.first_k = p.first_k;
    c.chunk = p.attention_chunk != 0;
    c.tree_mask = p.tree_mask;
    c.sinks = p.sinks != DType::unset;
    c.softcap = p.softcap != 0.0f;
    c.alibi = p.alibi;
    c.bias = p.bias == DType::unset                            ? BiasElement::none
             : p.bias == DType::fp32 && p.dtype != DType::fp32 ? BiasElement::fp32
                                                               : BiasElement::same;
    c.mask = p.mask;
    if (p.functions != 0) {
        const functions::Functions& given = functions::functions_of(p.functions);
        c.functions = p.functions;
        c.score_function = given.score() >= 0;
        c.mask_function = given.mask() >= 0;
        c.near_positions = access.near_tensors && has_near_positions(p);
    }
    c.block_lists = p.block_q != 0;
    c.lists_alone = c.block_lists && !c.mask_function;
    c.mask_function = c.mask_function || c.block_lists;
    c.dropout = p.dropout_threshold != 0;
    c.diagonals = p.diagonals && (c.band || c.alibi);  // nothing else counts from it
    c.shifted_dropout = c.dropout && (p.origins_i || p.origins_j || p.origin_i % 16 != 0 || p.origin_j % 16 != 0);
    // softcap / scale is a factor in fp32
    const float cap = p.softcap / p.scale;
    c.scale_first = c.alibi || c.bias != BiasElement::none || c.score_function || !(p.scale > 0.0f) ||
                    (c.softcap && !(cap > kLeastCap && cap < kMostCap));
    return {p, access, device, c};
}

std::int64_t blocks_at_a_time(const Question& q, const KernelConfig& c) {
    const std::int64_t all = std::int64_t{q.device.multiprocessors} * c.blocks_per_sm;
    return q.problem.sm_limit > 0 ? std::min<std::int64_t>(q.problem.sm_limit, all) : all;
}

std::string_view why_passed_over(const Candidate& candidate, const Question& question) {
    for (const std::span<const Condition> conditions : candidate.conditions)
        for (const Condition& condition : conditions)
            if (!condition.holds(question)) return condition.otherwise;
    return "";
}

}  // namespace flashtile::gpu
