// case.cpp: a case in one line, options that are off left out.
#include "conformance/case.h"

#include <algorithm>
#include <sstream>

namespace flashtile::conformance {
namespace {

std::string joined(const std::vector<std::int64_t>& values) {
    std::string text;
    for (const std::int64_t value : values) {
        if (!text.empty()) text += ',';
        text += std::to_string(value);
    }
    return text;
}

std::string spans_of(const BroadcastSpec& spec) {
    std::string text;
    const char letters[] = "bhqk";
    for (std::size_t n = 4 - static_cast<std::size_t>(spec.rank); n < 4; ++n) text += spec.spans[n] ? letters[n] : '1';
    return spec.expanded ? text + "(expanded)" : text;
}

const char* name_of(Scaling scaling) {
    return scaling == Scaling::none    ? "1"
           : scaling == Scaling::whole ? "whole"
           : scaling == Scaling::heads ? "heads"
                                       : "blocks";
}

const char* name_of(dtype type) {
    return type == fp32 ? "fp32" : type == fp16 ? "fp16" : "bf16";
}

}  // namespace

std::int64_t Case::longest_q() const {
    return packed() ? *std::max_element(lengths_q.begin(), lengths_q.end()) : seqlen_q;
}

std::int64_t Case::longest_k() const {
    return packed() ? *std::max_element(lengths_k.begin(), lengths_k.end()) : seqlen_k;
}

std::string to_string(const Case& p) {
    std::ostringstream text;
    text << name_of(p.type);
    if (p.e4m3.present) {
        text << (p.e4m3.keys_only ? " e4m3-keys" : " e4m3") << " scales=" << name_of(p.e4m3.q) << ','
             << name_of(p.e4m3.k) << ',' << name_of(p.e4m3.v);
        if (p.e4m3.block != 64) text << " scale-block=" << p.e4m3.block;
    }
    if (p.out_in_fp32) text << " out-in-fp32";
    if (p.packed()) {
        text << " packed q=" << joined(p.lengths_q) << " k=" << joined(p.lengths_k);
        if (p.spare_rows != 0) text << " +" << p.spare_rows << " rows";
        if (p.wide_lengths) text << " int64";
    } else {
        text << " batch=" << p.batch << " seqlen=" << p.seqlen_q << 'x' << p.seqlen_k;
    }
    text << " heads=" << p.heads << '/' << p.kv_heads << " d=" << p.head_dim << '/' << p.head_dim_v;
    if (p.latent) text << " latent";
    if (!p.used_k.empty()) text << " used_k=" << joined(p.used_k);
    if (!p.used_q.empty()) text << " used_q=" << joined(p.used_q);
    if (!p.first_k.empty()) text << " first_k=" << joined(p.first_k);
    if (p.cache.present && p.cache.page_size == 0) text << " cache-rows";
    if (p.cache.present && p.cache.page_size != 0) text << " pages-of=" << p.cache.page_size;
    if (p.cache.shared) text << " shared";
    if (!p.cache.groups.empty())
        text << " groups=" << joined(p.cache.groups) << " of-first-keys=" << joined(p.cache.prefixes);
    if (p.tree) text << " tree";
    if (p.positions) text << " positions";
    if (p.num_splits != 0) text << " splits=" << p.num_splits;
    if (p.causal.value == FLASHTILE_CAUSAL_BOTTOM_RIGHT) text << " causal";
    if (p.causal.value == FLASHTILE_CAUSAL_TOP_LEFT) text << " causal=top-left";
    if (p.window.left >= 0 || p.window.right >= 0) text << " window=" << p.window.left << ',' << p.window.right;
    if (p.align_top_left) text << " top-left";
    if (p.chunk != 0) text << " chunk=" << p.chunk;
    if (p.diagonal != 0) text << " diagonal=" << p.diagonal;
    if (const shard_origin& o = p.origin; o.b != 0 || o.h != 0 || o.i != 0 || o.j != 0)
        text << " origin=" << o.b << ',' << o.h << ',' << o.i << ',' << o.j;
    if (!p.diagonals.empty()) text << " diagonals=" << joined(p.diagonals);
    if (!p.origins_i.empty()) text << " origins_i=" << joined(p.origins_i);
    if (!p.origins_j.empty()) text << " origins_j=" << joined(p.origins_j);
    if (p.scale) text << " scale=" << *p.scale;
    if (p.softcap != 0.0f) text << " softcap=" << p.softcap;
    if (p.slopes == Slopes::per_head) text << " alibi=h";
    if (p.slopes == Slopes::per_batch_and_head) text << " alibi=bh";
    if (!p.score_function.empty()) text << " score_function=\"" << p.score_function << '"';
    if (p.tensor_gradients) text << " tensor_gradients";
    if (!p.mask_function.empty()) text << " mask_function=\"" << p.mask_function << '"';
    if (const BlockListsSpec& blocks = p.blocks; blocks.block_q != 0)
        text << " blocks=" << blocks.block_q << 'x' << blocks.block_k << (blocks.per_sequence ? ",b" : "")
             << (blocks.per_head ? ",h" : "") << (blocks.full ? ",full" : "");
    if (p.bias.present) text << " bias=" << spans_of(p.bias) << (p.bias_in_fp32 ? ":fp32" : "");
    if (p.bias_values == BiasValues::lowest_hides) text << " bias-hides-by-lowest";
    if (p.bias_values == BiasValues::infinity_hides) text << " bias-hides-by-infinity";
    if (p.bias_values == BiasValues::large) text << " bias-large";
    if (p.mask.present) text << " mask=" << spans_of(p.mask) << '@' << p.mask_density;
    if (p.sinks != Sinks::none) text << " sinks" << (p.sinks == Sinks::in_fp32 ? ":fp32" : "");
    if (p.dropout != 0.0) text << " dropout=" << p.dropout << " seed=" << p.seed << " offset=" << p.offset;
    if (p.seed_in_memory) text << " seed-in-memory";
    if (p.with_dlse) text << " dlse";
    if (p.deterministic) text << " deterministic";
    if (p.batch_invariant) text << " batch-invariant";
    if (p.exact_max) text << " exact-max";
    text << " threads=" << p.threads;
    const auto layout = [&](const char* what, const Layout& l) {
        if (l.heads_before_rows) text << ' ' << what << "=bhsd";
        if (l.row_gap != 0) text << ' ' << what << "+gap" << l.row_gap;
        if (l.broadcast_first) text << ' ' << what << "-same-batch";
        if (l.broadcast_heads) text << ' ' << what << "-same-heads";
        if (l.nonsense_strides) text << ' ' << what << "-nonsense-strides";
    };
    layout("in", p.inputs);
    layout("out", p.outputs);
    if (p.guard == Guard::page_after) text << " page-after";
    if (p.guard == Guard::page_before) text << " page-before";
    if (p.early_key != 1.0) text << " early_key=" << p.early_key;
    if (p.magnitude_qk != 1.0) text << " magnitude_qk=" << p.magnitude_qk;
    if (p.magnitude_v != 1.0) text << " magnitude_v=" << p.magnitude_v;
    text << " data=" << p.data_seed;
    return text.str();
}

}  // namespace flashtile::conformance
