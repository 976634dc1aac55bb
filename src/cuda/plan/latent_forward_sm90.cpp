// latent_forward_sm90.cpp: when Hopper's forward kernel for latent heads (MLA) runs, and on how many thread blocks.
#include <algorithm>
#include <bit>
#include <limits>

#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm90.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kAnyLength[] = {1};
constexpr int kWidestElsewhere = 256, kWidest = 576, kWidestValues = 512;

constexpr Condition kConditions[] = {
    {"no head dimension over 256", [](const Question& q) { return q.config.head_dim > kWidestElsewhere; }},
    {"v is not the first columns of k, in the same memory", [](const Question& q) { return q.access.values_in_keys; }},
    {"no GPU has run it yet", [](const Question& q) { return q.access.unseen_kernels; }},
    {"a cache, attention_chunk, tree_mask, sinks, first_k or seqused_q, which the general kernel has so far",
     [](const Question& q) { return !asks_for_serving(q.config); }},
    {"head_dim over 576, or head_dim_v over 512",
     [](const Question& q) { return q.config.head_dim <= kWidest && q.config.head_dim_v <= kWidestValues; }},
    {"head_dim_v up to 64, of which two consumers cannot each have a part",
     [](const Question& q) { return q.config.head_dim_v > kChunk; }},
    {"cumulative lengths", [](const Question& q) { return !q.config.packed; }},
    {"a bias, a boolean mask, ALiBi or dropout",
     [](const Question& q) { return !q.config.has_bias_or_mask() && !q.config.alibi && !q.config.dropout; }},
};

// Rows of a tile for each query. All heads of a group share K, and so they share tiles, however many queries there are.
int group_rows(const Problem& p) {
    const auto rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.group())));
    return p.seqlen_q * rows < std::numeric_limits<int>::max() / 2 ? static_cast<int>(rows) : 1;
}

std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = forward_config(q, Kernel::latent_forward_sm90);
    c.group_rows = group_rows(q.problem);
    return first_fit(c, sm90::kLatentForward, q.device);
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = main.config;
    Launch launch = main;
    const std::int64_t of_head = blocks_of(p.seqlen_q * c.group_rows, c.Br);
    const std::int64_t heads = (c.group_rows > 1 ? p.kv_heads : p.heads) * p.batch;
    const std::int64_t tiles = checked_blocks(of_head * heads);
    if (tiles > 0 && c.lengths_differ()) plan.workspace.add(Region::ticket, sizeof(std::uint32_t), true);
    launch.blocks = std::min(tiles, blocks_at_a_time(q, c));
    if (!c.lengths_differ())
        plan.rounds = tile_rounds(static_cast<unsigned>(of_head), static_cast<unsigned>(heads),
                                  static_cast<unsigned>(launch.blocks), c.band);
    launch.maps.push_back({MappedOperand::q, c.Br});
    launch.maps.push_back({MappedOperand::k, c.Bc, true});
    plan.launches.push_back(launch);
}

}  // namespace

constinit const Candidate latent_forward_sm90 = {
    "latent_forward_sm90", {kConditionsSm90, kConditions}, main_launch, complete, kAnyLength, kAnyLength};

}  // namespace flashtile::gpu
