// problem.cpp: names and printing of a Problem, for error messages, logs and plans.
#include "core/problem.h"

#include "functions/functions.h"

#include <sstream>
#include <utility>

namespace flashtile {

const char* name(DType dtype) {
    switch (dtype) {
        case DType::unset:
            return "unset";
        case DType::fp32:
            return "fp32";
        case DType::fp16:
            return "fp16";
        case DType::bf16:
            return "bf16";
        case DType::fp8_e4m3:
            return "fp8_e4m3";
        case DType::boolean:
            return "bool";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
    }
    return "unknown";
}

std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::fp32:
        case DType::int32:
            return 4;
        case DType::fp16:
        case DType::bf16:
            return 2;
        case DType::int64:
            return 8;
        case DType::fp8_e4m3:
        case DType::boolean:
            return 1;
        case DType::unset:
            break;
    }
    return 0;
}

const char* name(ScaleKind kind) {
    switch (kind) {
        case ScaleKind::none:
            return "none";
        case ScaleKind::tensor:
            return "tensor";
        case ScaleKind::head:
            return "head";
        case ScaleKind::block:
            return "block";
    }
    return "unknown";
}

std::string to_string(const Problem& p) {
    std::ostringstream text;
    text << name(p.dtype);
    if (p.kv_dtype != DType::unset) text << " kv=" << name(p.kv_dtype);
    if (p.out_dtype != DType::unset) text << " out=" << name(p.out_dtype);
    for (const auto& [of, kind] :
         {std::pair("q_scale", p.q_scale), std::pair("k_scale", p.k_scale), std::pair("v_scale", p.v_scale)})
        if (kind != ScaleKind::none) text << ' ' << of << '=' << name(kind);
    if (p.scale_block != 0) text << " scale_block=" << p.scale_block;
    text << " batch=" << p.batch << " heads=" << p.heads << "/" << p.kv_heads << " seqlen=" << p.seqlen_q << "x"
         << p.seqlen_k << " d=" << p.head_dim << " dv=" << p.head_dim_v << " scale=" << p.scale;
    if (p.packed && !p.cache) text << " packed=" << p.total_q << "x" << p.total_k;
    if (p.packed && p.cache) text << " packed=" << p.total_q;
    if (p.page_size != 0) text << " pages=" << p.pages << "x" << p.page_size;
    if (p.cache && p.page_size == 0) text << " cache_rows=" << p.pages;
    if (p.first_k) text << " first_k";
    if (p.used_q) text << " seqused_q";
    if (p.prefix_groups != 0) text << " prefix_groups=" << p.prefix_groups;
    if (p.appends) text << " append=" << p.append.rows_k << (p.append.pairs != 0 ? " rotated" : "");
    if (p.num_splits != 0) text << " splits=" << p.num_splits;
    if (p.window_left >= 0 || p.window_right >= 0)
        text << " window=" << p.window_left << "," << p.window_right << (p.top_left ? " top-left" : " bottom-right");
    if (p.diagonal != 0) text << " diagonal=" << p.diagonal;
    if (p.origin_b != 0 || p.origin_h != 0 || p.origin_i != 0 || p.origin_j != 0)
        text << " origin=" << p.origin_b << "," << p.origin_h << "," << p.origin_i << "," << p.origin_j;
    if (p.diagonals) text << " diagonals";
    if (p.origins_i) text << " origins_i";
    if (p.origins_j) text << " origins_j";
    if (p.attention_chunk != 0) text << " chunk=" << p.attention_chunk;
    if (p.softcap != 0) text << " softcap=" << p.softcap;
    if (p.alibi) text << " alibi";
    if (p.functions != 0) {
        const functions::Functions& given = functions::functions_of(p.functions);
        if (!given.score_text().empty()) text << " score=\"" << given.score_text() << '"';
        if (!given.mask_text().empty()) text << " mask=\"" << given.mask_text() << '"';
    }
    if (p.block_q != 0) text << " block_lists=" << p.block_q << "x" << p.block_k;
    if (p.bias != DType::unset) text << " bias=" << name(p.bias);
    if (p.mask) text << " mask";
    if (p.tree_mask) text << " tree_mask";
    if (p.positions) text << " positions";
    if (p.sinks != DType::unset) text << " sinks=" << name(p.sinks);
    if (p.dropout_threshold != 0) text << " dropout=" << p.dropout_threshold << "/65536";
    if (p.deterministic) text << " deterministic";
    if (p.batch_invariant) text << " batch_invariant";
    if (p.sm_limit != 0) text << " sm_limit=" << p.sm_limit;
    if (p.exact_max && !p.batch_invariant) text << " exact_max";
    return text.str();
}

}  // namespace flashtile
