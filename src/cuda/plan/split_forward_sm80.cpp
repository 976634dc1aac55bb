// split_forward_sm80.cpp: the general forward kernel where keys are split over thread blocks (section 3.2 of the
// paper), or lie in a cache: tiles for few rows, in which the heads of a group share K and V; the rule for splits; and
// the combine.
#include <algorithm>

#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/forward_sm80.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm80.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

// One query, some queries, and many, of which some sequences of a batch may have few; few keys, and many.
constexpr std::int64_t kSplitLengthsQ[] = {1, 64, 65}, kSplitLengthsK[] = {1, 65536};

bool few_queries(const Problem& p) {
    return p.seqlen_q <= KeySplits::kMostQueries;
}

// Rows of a tile for each query, where the heads of a group share it: they read K and V together.
int group_rows(const KernelConfig& c, const Problem& p) {
    const bool alike = !c.alibi && !c.dropout && !c.has_bias_or_mask() && !c.has_functions();
    return alike && few_queries(p) ? static_cast<int>(p.group()) : 1;
}

std::optional<Launch> tile_for(const Question& q) {
    KernelConfig c = forward_config(q, Kernel::split_forward_sm80);
    slice_values(c, q.problem);
    c.group_rows = group_rows(c, q.problem);
    const bool fp32 = c.element == Element::fp32;
    // With batch_invariant a row's bits may not depend on how many rows there are, and so not on another tile.
    if (q.problem.seqlen_q * c.group_rows <= sm80::kFewRows && !q.problem.batch_invariant)
        return first_fit(c, fp32 ? std::span<const Tile>(sm80::kForwardFewFp32) : sm80::kForwardFew, q.device);
    // places of keys and bounds of splits take registers, as options do
    return first_fit(c, fp32 ? std::span<const Tile>(sm80::kForwardFp32) : sm80::kForwardWithOptions, q.device);
}

// How many tiles the problem has where all keys of a tile go to one thread block.
std::int64_t tiles_of(const Problem& p, const KernelConfig& c) {
    const std::int64_t heads = c.group_rows > 1 ? p.kv_heads : p.heads;
    return checked_blocks(blocks_of(p.seqlen_q * c.group_rows, c.Br) * heads * p.batch * c.value_slices);
}

// Splits of equal length that fill the machine best: the fewest of those that keep nearly as much of it busy as any.
std::int64_t splits_that_fill(std::int64_t tiles, std::int64_t at_a_time, std::int64_t most) {
    constexpr double kNearly = 0.85;
    const auto busy = [&](std::int64_t splits) {
        const std::int64_t waves = (tiles * splits + at_a_time - 1) / at_a_time;
        return static_cast<double>(tiles * splits) / static_cast<double>(waves * at_a_time);
    };
    double best = 0.0;
    for (std::int64_t splits = 1; splits <= most; ++splits) best = std::max(best, busy(splits));
    std::int64_t splits = 1;
    while (busy(splits) < kNearly * best) ++splits;
    return splits;
}

// The rule by which keys are split, a pure function of shapes and of the GPU.
SplitRule split_rule(const Question& q, const KernelConfig& c) {
    // Where lengths lie in device memory, splits are short, so that unequal sequences fill the machine too.
    constexpr std::int64_t kUnknownLength = 1024;
    // Beside sequences with many queries, which fill it.
    constexpr std::int64_t kAmongOthers = 2048;
    const Problem& p = q.problem;
    if (p.num_splits > 0) return {.forced = p.num_splits};
    if (p.batch_invariant) return {};
    if (!few_queries(p)) return {.keys = kAmongOthers};
    const std::int64_t units = blocks_of(p.seqlen_k, KeySplits::kUnit), tiles = tiles_of(p, c);
    if (units == 0 || tiles == 0) return {.keys = KeySplits::kUnit};
    const std::int64_t splits =
        splits_that_fill(tiles, blocks_at_a_time(q, c), std::min<std::int64_t>(units, KeySplits::kMost));
    const std::int64_t keys = blocks_of(units, static_cast<int>(splits)) * KeySplits::kUnit;
    return {.keys = c.lengths_differ() ? std::min(keys, kUnknownLength) : keys};
}

// Queries of a sequence whose keys may be split.
std::int64_t split_queries(const Problem& p) {
    return std::min<std::int64_t>(p.seqlen_q, KeySplits::kMostQueries);
}

bool splits(const Question& q, const KernelConfig& c) {
    const Problem& p = q.problem;
    const bool some_have_few = few_queries(p) || (p.packed && (p.cache || p.batch_invariant)) || c.seqused_q;
    return some_have_few && p.seqlen_q > 0 && KeySplits::most(p.seqlen_k, split_rule(q, c)) > 1;
}

// With sm_limit thread blocks are few, and walk through the tiles as they do through splits.
std::optional<Launch> main_launch(const Question& q) {
    std::optional<Launch> launch = tile_for(q);
    const bool few_blocks = q.problem.sm_limit != 0 && q.problem.seqlen_q > 0;
    if (launch) launch->config.split = few_blocks || splits(q, launch->config);
    return launch;
}

// One thread block numbers the units of work; it needs to know how long sequences are, and which rows a tile has.
Launch deal_launch(const KernelConfig& main) {
    KernelConfig c;
    c.kernel = Kernel::deal_splits;
    c.element = main.element;
    take_lengths(c, main);
    c.group_rows = main.group_rows;
    c.Br = main.Br;
    c.warps = 8;
    return {.config = c, .shared_memory = shared_bytes(c), .blocks = 1, .why = "sequences are few"};
}

Launch combine_launch(const Question& q, const KernelConfig& main) {
    const KernelConfig c = fold_config(q, main, Kernel::combine);
    const std::int64_t rows = q.problem.batch * split_queries(q.problem) * q.problem.heads;
    return {.config = c,
            .blocks = checked_blocks(blocks_of(rows, c.warps * 32 / row_lanes(c))),
            .why = "a row's columns side by side in a warp"};
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = main.config;
    Launch launch = main;
    launch.blocks = tiles_of(p, c);
    if (!c.split) {
        plan.launches.push_back(launch);
        return;
    }
    if (splits(q, c)) {
        plan.split_rule = split_rule(q, c);
        plan.most_splits = KeySplits::most(p.seqlen_k, plan.split_rule);
    } else {
        plan.split_rule = {.forced = 1};
    }
    plan.part_queries = static_cast<int>(split_queries(p));
    const std::int64_t split_tiles =
        launch.blocks / blocks_of(p.seqlen_q * c.group_rows, c.Br) * blocks_of(plan.part_queries * c.group_rows, c.Br);
    const std::int64_t parts = checked_blocks(launch.blocks + split_tiles * (plan.most_splits - 1));
    launch.blocks = std::min(parts, blocks_at_a_time(q, c));
    // where lengths differ, few sequences need as many splits as there is room for
    if (c.lengths_differ() && parts > launch.blocks) {
        plan.launches.push_back(deal_launch(c));
        plan.workspace.add(Region::first_unit, static_cast<std::size_t>(p.batch + 1) * sizeof(std::uint32_t));
        plan.workspace.add(Region::ticket, sizeof(std::uint32_t));
    }
    plan.main_launch = plan.launches.size();
    plan.launches.push_back(launch);
    if (plan.most_splits == 1) return;
    plan.launches.push_back(combine_launch(q, c));
    const auto rows = static_cast<std::size_t>(p.batch * plan.part_queries * p.heads * plan.most_splits);
    plan.workspace.add(Region::part_o, rows * static_cast<std::size_t>(p.head_dim_v) * sizeof(float));
    plan.workspace.add(Region::part_ml, rows * 2 * sizeof(float));
}

// What no other kernel computes on this GPU. With batch_invariant a sequence has the same bits alone, in a packed batch
// and in a cache, and so the same kernel with the same tile.
bool alone_serves(const Question& q) {
    const Problem& p = q.problem;
    const bool hopper = why_passed_over(forward_sm90, q).empty();
    const bool asks = asks_for_serving(q.config) || p.sm_limit != 0 || p.batch_invariant || !kOneElement.holds(q);
    return asks && !hopper;
}

constexpr Condition kConditions[] = {
    {"without a cache's options, and a sequence may have more than 64 queries",
     [](const Question& q) { return alone_serves(q) || few_queries(q.problem); }},
    {"one thread block for all keys is as fast",
     [](const Question& q) {
         const std::optional<Launch> launch = tile_for(q);
         return alone_serves(q) || (launch && splits(q, launch->config));
     }},
    {"Hopper's kernel keeps the machine busy", [](const Question& q) { return !forward_sm90_fills(q); }},
};

}  // namespace

constinit const Candidate split_forward_sm80 = {"split_forward_sm80", {kConditions}, main_launch, complete,
                                                kSplitLengthsQ,       kSplitLengthsK};

}  // namespace flashtile::gpu
