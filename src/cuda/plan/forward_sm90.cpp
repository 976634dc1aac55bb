// forward_sm90.cpp: when Hopper's forward kernel runs, with which tile and on how many thread blocks.
#include <algorithm>
#include <bit>

#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm90.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kShort = 2048, kLong = 4096;  // queries and keys at which the tiles change
constexpr std::int64_t kFew = 64;                    // queries of a head that fill at most half of a tile
constexpr std::int64_t kMostOfGroup = 64;            // heads that share a tile: a consumer's rows are whole queries
constexpr int kConsumerRows = 64;                    // a consumer stores its own rows of O

constexpr std::int64_t kSeqlensQ[] = {1, kFew + 1, kShort, kLong}, kSeqlensK[] = {1, kLong};

constexpr Condition kConditions[] = {
    kAtMost256,
    {"a head dimension over 192, and a bias in fp32 or with a mask, which take more registers",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         const bool many = c.bias == BiasElement::fp32 || (c.mask && c.bias != BiasElement::none);
         return !many || std::max(c.head_dim, c.head_dim_v) <= 192;
     }},
};

// Rows of a tile for each query, where the heads of a group share it.
int group_rows(const KernelConfig& c, const Problem& p) {
    const bool alike = !c.packed && !c.alibi && !c.dropout && !c.has_bias_or_mask();
    if (!alike || p.seqlen_q > kFew || p.group() > kMostOfGroup) return 1;
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.group())));
}

// Tiles differ in their work, or their number is not known before the launch.
bool uneven(const KernelConfig& c) {
    return c.band || c.lengths_differ();
}

std::span<const Tile> table_for(const KernelConfig& c, const Problem& p) {
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
    const std::span<const Tile> table = table_for(c, q.problem);
    KernelConfig grouped = c;
    grouped.group_rows = group_rows(c, q.problem);
    if (auto launch = first_fit(grouped, table, q.device)) return launch;
    return first_fit(c, table, q.device);
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = main.config;
    Launch launch = main;
    const std::int64_t of_head = blocks_of(p.seqlen_q * c.group_rows, c.Br);
    const std::int64_t heads = (c.group_rows > 1 ? p.kv_heads : p.heads) * p.batch;
    // a packed sequence may leave a part of a tile over
    const std::int64_t tiles = checked_blocks(c.packed ? p.heads * p.units(c.Br) : of_head * heads);
    // Where lengths differ, tiles are dealt out as they are asked for: how many have been is counted.
    if (tiles > 0 && c.lengths_differ()) plan.workspace.add(Region::ticket, sizeof(std::uint32_t), true);
    // Persistent, as many thread blocks as there is room for at a time, where tiles are unequal or short; long equal
    // ones gain nothing.
    const bool persistent = uneven(c) || p.seqlen_k < kLong || p.sm_limit != 0;
    launch.blocks = persistent ? std::min(tiles, blocks_at_a_time(q, c)) : tiles;
    if (!c.lengths_differ())
        plan.rounds = tile_rounds(static_cast<unsigned>(of_head), static_cast<unsigned>(heads),
                                  static_cast<unsigned>(launch.blocks), c.band);

    launch.maps.push_back({MappedOperand::q, c.Br});
    launch.maps.push_back({MappedOperand::k, c.Bc, true});
    launch.maps.push_back({MappedOperand::v, c.Bc, true});
    if (output_parts(c) > 0) launch.maps.push_back({MappedOperand::out, kConsumerRows});
    if (c.bias_mapped) launch.maps.push_back({MappedOperand::bias, c.Br});
    plan.launches.push_back(launch);
}

}  // namespace

constinit const Candidate forward_sm90 = {
    "forward_sm90", {kConditionsSm90, kConditions}, main_launch, complete, kSeqlensQ, kSeqlensK};

}  // namespace flashtile::gpu
