// forward_sm90.cpp: when Hopper's forward kernel runs, with which tile and on how many thread blocks.
#include <algorithm>
#include <bit>
#include <numeric>

#include "cuda/jit/config_fields.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm90.h"
#include "shared/kernel_layout.h"
#include "shared/key_splits.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kShort = 2048, kLong = 4096;  // queries and keys at which the tiles change
constexpr std::int64_t kFew = 64;                    // queries of a head that fill at most half of a tile
constexpr std::int64_t kMostOfGroup = 64;            // heads that share a tile: a consumer's rows are whole queries
constexpr int kConsumerRows = 64;                    // a consumer stores its own rows of O

constexpr std::int64_t kSeqlensQ[] = {1, kFew + 1, kShort, kLong}, kSeqlensK[] = {1, kLong};

constexpr int kLeastBox = 16;  // rows of a page that are worth a copy of TMA

// Few queries, and all heads of a group do the same with a key.
bool few_alike(const KernelConfig& c, const Problem& p) {
    const bool alike = !c.alibi && !c.dropout && !c.has_bias_or_mask();
    return alike && p.seqlen_q <= kFew && p.group() <= kMostOfGroup;
}

// Where queries are few, thread blocks have equal shares of all keys.
bool shares_keys(const Question& q) {
    return q.access.unseen_kernels && few_alike(q.config, q.problem) && q.problem.num_splits == 0;
}

// How many rows of a page, or of a cache's row, a block of keys has in one piece.
int page_box(const KernelConfig& c, const Problem& p) {
    return c.paged ? static_cast<int>(std::gcd<std::int64_t>(p.page_size, c.Bc)) : c.Bc;
}

constexpr Condition kConditions[] = {
    kAtMost256,
    {"a cache, attention_chunk, sinks, first_k or seqused_q, with which no GPU has run Hopper's kernel yet",
     [](const Question& q) { return q.access.unseen_kernels || !asks_for_serving(q.config); }},
    {"tree_mask, which the general kernel has so far", [](const Question& q) { return !q.config.tree_mask; }},
    {"a prefix that sequences share, which the general kernel has so far",
     [](const Question& q) { return q.problem.prefix_groups == 0; }},
    {"a cache with a bias, a mask or dropout, which the general kernel has so far",
     [](const Question& q) { return !q.config.cache || (!q.config.has_bias_or_mask() && !q.config.dropout); }},
    {"pages of which TMA would load fewer than 16 rows at a time",
     [](const Question& q) { return !q.config.paged || q.problem.page_size % kLeastBox == 0; }},
    {"num_splits, which the general kernel has so far", [](const Question& q) { return q.problem.num_splits <= 1; }},
    {"sequences in a cache have few queries each, and some have many",
     [](const Question& q) {
         const Problem& p = q.problem;
         return !(p.cache && p.packed) || shares_keys(q) || p.total_q >= p.batch * kFew;
     }},
    {"a head dimension over 192, and a bias in fp32 or with a mask, which take more registers",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         const bool many = c.bias == BiasElement::fp32 || (c.mask && c.bias != BiasElement::none);
         return !many || std::max(c.head_dim, c.head_dim_v) <= 192;
     }},
};

// Rows of a tile for each query, where the heads of a group share it.
int group_rows(const KernelConfig& c, const Problem& p) {
    if (!few_alike(c, p) || (c.packed && !c.shares)) return 1;
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.group())));
}

// Tiles differ in their work, or their number is not known before the launch.
bool uneven(const KernelConfig& c) {
    return c.band || c.lengths_differ();
}

std::span<const Tile> table_for(const KernelConfig& c, const Problem& p) {
    if (c.shares)
        return p.seqlen_q * c.group_rows <= kConsumerRows ? std::span<const Tile>(sm90::kForwardFew)
                                                          : sm90::kForwardSome;
    if (c.has_bias_or_mask()) {
        if (c.dropout) return sm90::kForwardBiasOrMaskDropout;
        const bool alone = c.softcap + c.alibi + c.mask + (c.bias != BiasElement::none) == 1;
        if (c.bias == BiasElement::fp32 || !alone || (c.bias_mapped && c.lengths_differ()))
            return sm90::kForwardBiasAndMore;
        if (c.bias_mapped) return sm90::kForwardBiasMapped;
        return c.mask ? std::span<const Tile>(sm90::kForwardMask) : sm90::kForwardBias;
    }
    if (c.dropout) return sm90::kForwardDropout;
    if (p.seqlen_q < (c.band ? kLong : kShort) || c.lengths_differ()) return sm90::kForwardShort;
    return p.seqlen_k >= kLong && !uneven(c) ? std::span<const Tile>(sm90::kForwardLong) : sm90::kForward;
}

std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = forward_config(q, Kernel::forward_sm90);
    c.bias_mapped = c.bias == BiasElement::same && q.access.bias_map && !c.dropout;
    c.shares = shares_keys(q);
    KernelConfig grouped = c;
    grouped.group_rows = group_rows(c, q.problem);
    if (auto launch = first_fit(grouped, table_for(grouped, q.problem), q.device)) return launch;
    return first_fit(c, table_for(c, q.problem), q.device);
}

// Tiles of rows that the problem has at most.
std::int64_t most_tiles(const Problem& p, const KernelConfig& c) {
    const std::int64_t heads = c.group_rows > 1 ? p.kv_heads : p.heads;
    // a packed sequence may leave a part of a tile over
    if (c.packed && !c.shares) return checked_blocks(heads * p.units(c.Br));
    return checked_blocks(blocks_of(p.seqlen_q * c.group_rows, c.Br) * heads * p.batch);
}

Launch combine_launch(const Question& q, const KernelConfig& main) {
    KernelConfig c = q.config;
    reset(c, FieldGroup::option);
    c.kernel = Kernel::combine_shares;
    c.packed = main.packed;
    c.cache = main.cache;
    c.seqused = main.seqused;
    c.seqused_q = main.seqused_q;
    c.sinks = main.sinks;
    c.lse = main.lse;
    c.shares = true;
    c.group_rows = main.group_rows;
    c.Br = main.Br;
    c.warps = 4;
    return {.config = c,
            .shared_memory = shared_bytes(c),
            .blocks = checked_blocks(q.problem.batch * q.problem.seqlen_q * q.problem.heads),
            .why = "a row a block: its parts are far away, and many",
            .early = true};
}

// Equal shares, and the combine where a tile may be in more than one.
void share_out(const Question& q, std::int64_t tiles, Launch& launch, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = launch.config;
    const std::int64_t most_keys = checked_blocks(tiles * std::max<std::int64_t>(1, blocks_of(p.seqlen_k, c.Bc)));
    launch.blocks = std::min(blocks_at_a_time(q, c), blocks_of(most_keys, KeyShares::kFewest));
    if (launch.blocks == 0) return;
    plan.part_queries = static_cast<int>(p.seqlen_q);
    plan.part_rows = static_cast<int>(std::min<std::int64_t>(c.Br, p.seqlen_q * c.group_rows));
    plan.share_blocks = static_cast<unsigned>(launch.blocks);
    const auto parts = static_cast<std::size_t>(2 * launch.blocks * plan.part_rows);
    plan.workspace.add(Region::first_unit, static_cast<std::size_t>(p.batch + 1) * sizeof(std::uint32_t));
    plan.workspace.add(Region::part_o, parts * static_cast<std::size_t>(p.head_dim_v) * sizeof(float));
    plan.workspace.add(Region::part_ml, parts * 2 * sizeof(float));
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = main.config;
    Launch launch = main;
    plan.page_box = page_box(c, p);
    const std::int64_t tiles = most_tiles(p, c);
    if (c.shares) {
        share_out(q, tiles, launch, plan);
    } else {
        // Where lengths differ, tiles are dealt out as they are asked for: how many have been is counted.
        if (tiles > 0 && c.lengths_differ()) plan.workspace.add(Region::ticket, sizeof(std::uint32_t), true);
        // Persistent, as many thread blocks as there is room for at a time, where tiles are unequal or short; long
        // equal ones gain nothing.
        const bool persistent = uneven(c) || p.seqlen_k < kLong || p.sm_limit != 0;
        launch.blocks = persistent ? std::min(tiles, blocks_at_a_time(q, c)) : tiles;
        if (!c.lengths_differ())
            plan.rounds = tile_rounds(static_cast<unsigned>(blocks_of(p.seqlen_q * c.group_rows, c.Br)),
                                      static_cast<unsigned>((c.group_rows > 1 ? p.kv_heads : p.heads) * p.batch),
                                      static_cast<unsigned>(launch.blocks), c.band);
    }

    launch.maps.push_back({MappedOperand::q, c.Br});
    launch.maps.push_back({MappedOperand::k, plan.page_box, true});
    launch.maps.push_back({MappedOperand::v, plan.page_box, true});
    if (output_parts(c) > 0) launch.maps.push_back({MappedOperand::out, kConsumerRows});
    if (c.bias_mapped) launch.maps.push_back({MappedOperand::bias, c.Br});
    plan.launches.push_back(launch);
    if (c.shares && launch.blocks > 0 && p.seqlen_k > c.Bc) plan.launches.push_back(combine_launch(q, c));
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
