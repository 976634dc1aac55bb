// forward_sm90.cpp: when Hopper's forward kernel runs, with which tile and on how many thread blocks.
#include <algorithm>
#include <bit>

#include "cuda/plan/block_map.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/forward_launches.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm90.h"
#include "functions/functions.h"
#include "functions/interval.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kShort = 2048, kLong = 4096;  // queries and keys at which the tiles change
constexpr std::int64_t kLongFunctions = 8192;        // keys at which they do beside functions and lists of blocks
constexpr std::int64_t kMostOfGroup = 64;            // heads that share a tile: a consumer's rows are whole queries

constexpr std::int64_t kSeqlensQ[] = {1, kFewQueries + 1, kShort, kLong}, kSeqlensK[] = {1, kLong, kLongFunctions};

int widest(const KernelConfig& c) {
    return std::max(c.head_dim, c.head_dim_v);
}

// q, k and v are e4m3, and so are the products' factors.
bool all_e4m3(const KernelConfig& c) {
    return c.converts_q;
}

// Few queries, and all heads of a group do the same with a key.
bool few_alike(const KernelConfig& c, const Problem& p) {
    const bool alike = !c.alibi && !c.dropout && !c.has_bias_or_mask() && !c.has_functions() && !all_e4m3(c);
    return alike && p.seqlen_q <= kFewQueries && p.group() <= kMostOfGroup;
}

// Softcap takes registers that wide heads do not leave where keys are shared out or lie in a cache.
bool softcap_fits(const KernelConfig& c) {
    return !c.softcap || widest(c) <= 128;
}

// O of wide heads leaves no registers either for a window's left side or a packed sequence's place.
bool share_fits(const KernelConfig& c) {
    return softcap_fits(c) && (widest(c) <= 192 || !(c.window || c.packed));
}

// Where queries are few, thread blocks have equal shares of all keys.
bool shares_keys(const Question& q) {
    return few_alike(q.config, q.problem) && q.problem.num_splits == 0 && share_fits(q.config);
}

// Rows of a query where the heads of a group share a tile.
int rows_of_group(const Problem& p) {
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.group())));
}

bool fits_one_consumer(const Question& q) {
    return shares_keys(q) && q.problem.seqlen_q * rows_of_group(q.problem) <= kConsumerRows;
}

constexpr Condition kConditions[] = {
    kAtMost256,
    {"e4m3 with softcap, ALiBi, a bias, a mask, functions, dropout or a scale that is not positive, which the general "
     "kernel has",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         return !c.converts_kv || (!c.softcap && !c.scale_first && !c.mask && !c.has_functions() && !c.dropout);
     }},
    {"k and v in e4m3 beside 16-bit queries, with scales of blocks in pages, first_k, attention_chunk or a shared "
     "prefix, or with a head dimension over 128 and more queries than a consumer has rows, which the general kernel "
     "has",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         const bool more = (c.scale_blocks && c.paged) || c.first_k || c.chunk || q.problem.prefix_groups != 0;
         return !c.converts_kv || all_e4m3(c) || (!more && (widest(c) <= 128 || fits_one_consumer(q)));
     }},
    {"e4m3 with a cache or what serving asks for beside one, which the general kernel has",
     [](const Question& q) { return !all_e4m3(q.config) || !asks_for_serving(q.config); }},
    kNoTree,
    {"a prefix that sequences share, of which something is hidden (a window, attention_chunk, first_k)",
     [](const Question& q) { return q.problem.prefix_groups == 0 || (!q.config.window && !q.config.first_k); }},
    {"a prefix that sequences share, with many queries, with queries at unequal steps or with seqused_q",
     [](const Question& q) {
         return q.problem.prefix_groups == 0 || (shares_keys(q) && q.access.even_queries && !q.config.seqused_q);
     }},
    {"a cache with a bias, a mask or dropout, which the general kernel has so far",
     [](const Question& q) { return !q.config.cache || (!q.config.has_bias_or_mask() && !q.config.dropout); }},
    {"a cache, or sinks, with softcap and a head dimension over 128, which takes more registers",
     [](const Question& q) { return !(q.config.cache || q.config.sinks) || softcap_fits(q.config); }},
    {"sinks with a bias or a mask, which the general kernel has so far",
     [](const Question& q) { return !q.config.sinks || !q.config.has_bias_or_mask(); }},
    {"first_k or attention_chunk with softcap or a head dimension over 128, which take more registers",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         return !(c.first_k || c.chunk) || (!c.softcap && widest(c) <= 128);
     }},
    {"score_function or mask_function with a head dimension over 192, which takes more registers",
     [](const Question& q) { return !q.config.has_functions() || widest(q.config) <= 192; }},
    {"score_function or mask_function with a bias or a mask, which take more registers",
     [](const Question& q) { return !q.config.has_functions() || !q.config.has_bias_or_mask(); }},
    {"score_function or mask_function with a cache, first_k, seqused_q, sinks or attention_chunk, which the general "
     "kernel has so far",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         return !c.has_functions() || !(c.cache || c.first_k || c.seqused_q || c.sinks || c.chunk);
     }},
    {"block_lists with a head dimension over 192, which takes more registers",
     [](const Question& q) { return !q.config.block_lists || widest(q.config) <= 192; }},
    kDropsInSquares,
    kOneDiagonal,
    kPagesFillBoxes,
    kNoForcedSplits,
    {"sequences in a cache have few queries each, and some have many",
     [](const Question& q) {
         const Problem& p = q.problem;
         return !(p.cache && p.packed) || shares_keys(q) || p.total_q >= p.batch * kFewQueries;
     }},
    {"a head dimension over 192, and a bias in fp32 or with a mask, which take more registers",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         const bool many = c.bias == BiasElement::fp32 || (c.mask && c.bias != BiasElement::none);
         return !many || widest(c) <= 192;
     }},
    {"a head dimension over 192, and a prefix that sequences share, which takes more registers",
     [](const Question& q) { return q.problem.prefix_groups == 0 || widest(q.config) <= 192; }},
};

// Rows of a tile for each query, where the heads of a group share it.
int group_rows(const KernelConfig& c, const Problem& p) {
    if (!few_alike(c, p) || (c.packed && !c.shares)) return 1;
    return rows_of_group(p);
}

// Whether the last query sees the first key whatever tensors hold: as under a causal mask, and not in a window.
bool shows_most(const Problem& p) {
    const functions::Functions& of = functions::functions_of(p.functions);
    return functions::visible(of.mask_graph(), of.mask(), of.tensors(),
                              {0, 0, p.seqlen_q - 1, p.seqlen_q, 0, 1, p.seqlen_q, p.seqlen_k}) ==
           functions::Visible::all;
}

std::span<const Tile> table_for_functions(const KernelConfig& c, const Problem& p) {
    if (c.block_lists && (p.block_q % 128 != 0 || p.block_k % 128 != 0)) {
        const std::span<const Tile> all = sm90::kForwardNarrowLists;
        return c.score_function ? all.subspan(1) : all;  // three blocks leave it no registers
    }
    const bool is_long = p.seqlen_k >= kLongFunctions;
    if (c.score_function || (c.block_lists && is_long)) return sm90::kForwardFunctions;
    if (!c.block_lists && !c.lengths_differ() && is_long && shows_most(p)) return sm90::kForwardMaskFunctionLong;
    return sm90::kForwardMaskFunction;
}

std::span<const Tile> table_for(const KernelConfig& c, const Problem& p) {
    if (c.element == Element::e4m3) {
        // which has registers, too, for groups of keys of sequences whose places lie in memory
        if (c.window || (c.scale_blocks && c.lengths_differ())) return sm90::kForwardE4m3Window;
        if (c.lengths_differ() || (c.band && p.seqlen_q < kLong)) return sm90::kForwardE4m3Short;
        return c.band || p.seqlen_k < kLongKeys ? std::span<const Tile>(sm90::kForwardE4m3) : sm90::kForwardE4m3Long;
    }
    if (c.converts_kv) {
        const bool few = c.shares && p.seqlen_q * c.group_rows <= kConsumerRows;
        return few ? std::span<const Tile>(sm90::kForwardE4m3KeysFew) : sm90::kForwardE4m3Keys;
    }
    // what a group shares, the queries of many sequences see
    if (c.prefixes && widest(c) <= 128 && !c.softcap && !c.sinks) return sm90::kForwardCache;
    if (c.shares) {
        const bool few = !c.prefixes && p.seqlen_q * c.group_rows <= kConsumerRows;
        return few && !(c.window && c.packed) && widest(c) <= 128 ? std::span<const Tile>(sm90::kForwardFew)
                                                                  : sm90::kForwardSome;
    }
    if (asks_for_serving(c)) {
        const bool options = c.window || c.softcap || c.first_k || c.sinks;
        return options ? std::span<const Tile>(sm90::kForwardSome) : sm90::kForwardCache;
    }
    if (c.has_bias_or_mask()) {
        if (c.dropout) return sm90::kForwardBiasOrMaskDropout;
        const bool alone = c.softcap + c.alibi + c.mask + (c.bias != BiasElement::none) == 1;
        if (c.bias == BiasElement::fp32 || !alone || (c.bias_mapped && c.lengths_differ()))
            return sm90::kForwardBiasAndMore;
        if (c.bias_mapped) return sm90::kForwardBiasMapped;
        return c.mask ? std::span<const Tile>(sm90::kForwardMask) : sm90::kForwardBias;
    }
    if (c.dropout) return sm90::kForwardDropout;
    if (c.has_functions()) return table_for_functions(c, p);
    if (p.seqlen_q < (c.band ? kLong : kShort) || c.lengths_differ()) return sm90::kForwardShort;
    return p.seqlen_k >= kLongKeys && !has_uneven_tiles(c) ? std::span<const Tile>(sm90::kForwardLong) : sm90::kForward;
}

std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = forward_config(q, Kernel::forward_sm90);
    if (all_e4m3(c)) {
        c.element = Element::e4m3;
        c.converts_q = c.converts_kv = false;
    }
    c.bias_mapped = c.bias == BiasElement::same && q.access.bias_map && !c.dropout;
    c.shares = shares_keys(q);
    c.prefixes = c.shares && q.problem.prefix_groups != 0;
    KernelConfig grouped = c;
    grouped.group_rows = group_rows(c, q.problem);
    if (auto launch = first_fit(grouped, table_for(grouped, q.problem), q.device)) return launch;
    return first_fit(c, table_for(c, q.problem), q.device);
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    add_block_map(q, main.config, plan);
    plan.main_launch = plan.launches.size();
    Launch launch = main;
    launch.early = main.config.mask_function;  // behind its map, for which it waits
    add_forward_launches(q, launch, plan);
}

}  // namespace

bool forward_sm90_fills(const Question& q) {
    if (!why_passed_over(forward_sm90, q).empty()) return false;
    // without shares, its tiles keep a quarter of the multiprocessors busy at least
    constexpr std::int64_t kShare = 4;
    return shares_keys(q) || q.problem.batch * q.problem.kv_heads * kShare > q.device.multiprocessors;
}

constinit const Candidate forward_sm90 = {
    "forward_sm90", {kConditionsSm90, kConditions}, main_launch, complete, kSeqlensQ, kSeqlensK};

}  // namespace flashtile::gpu
