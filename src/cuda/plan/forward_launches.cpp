// forward_launches.cpp: see forward_launches.h.
#include "cuda/plan/forward_launches.h"

#include <algorithm>
#include <numeric>

#include "cuda/plan/forward_config.h"
#include "cuda/plan/limits.h"
#include "shared/kernel_layout.h"
#include "shared/key_splits.h"

namespace flashtile::gpu {
namespace {

// How many rows of a page, or of a cache's row, a block of keys has in one piece.
int page_box(const KernelConfig& c, const Problem& p) {
    return c.paged ? static_cast<int>(std::gcd<std::int64_t>(p.page_size, c.Bc)) : c.Bc;
}

// Tiles of rows that the problem has at most.
std::int64_t most_tiles(const Problem& p, const KernelConfig& c) {
    const std::int64_t heads = c.group_rows > 1 ? p.kv_heads : p.heads;
    // a packed sequence may leave a part of a tile over
    if (c.packed && !c.shares) return checked_blocks(heads * p.units(c.Br));
    return checked_blocks(blocks_of(p.seqlen_q * c.group_rows, c.Br) * heads * p.batch);
}

// With prefixes a sequence's tiles are worked on twice, once for a prefix by itself, and groups have tiles, too.
std::int64_t most_group_tiles(const Problem& p, const KernelConfig& c) {
    const std::int64_t heads = c.group_rows > 1 ? p.kv_heads : p.heads;
    return heads * (checked_blocks(p.rows_q() * p.runs() * c.group_rows) / c.Br + p.prefix_groups);
}

// As many groups of lanes fold a row as it has parts, or as keep the multiprocessors busy.
int fold_groups(const Question& q, const KernelConfig& combine, std::int64_t rows, std::int64_t parts) {
    const int most = combine_groups(combine);
    int groups = 1;
    while (2 * groups <= most && 2 * groups <= parts &&
           (groups * kPartsAtOnce < parts || rows * groups < q.device.multiprocessors * most))
        groups *= 2;
    return groups;
}

// A row of O has about `parts` parts.
Launch combine_launch(const Question& q, const KernelConfig& main, std::int64_t parts, Plan& plan) {
    KernelConfig c = fold_config(q, main, Kernel::combine_shares);
    c.warps = 8;
    c.shares = true;
    c.prefixes = c.paged = main.prefixes;
    c.group_rows = main.group_rows;
    c.Br = main.Br;
    const std::int64_t rows = checked_blocks(q.problem.batch * q.problem.seqlen_q * q.problem.heads);
    plan.fold_groups = fold_groups(q, c, rows, parts);
    return {.config = c,
            .shared_memory = shared_bytes(c),
            .blocks = blocks_of(rows * plan.fold_groups, combine_groups(c)),
            .why = "groups of lanes share a row's parts, which are far away",
            .early = true};
}

// Equal shares, and the combine where a tile may be in more than one.
void share_out(const Question& q, std::int64_t tiles, Launch& launch, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = launch.config;
    const std::int64_t of_groups = c.prefixes && tiles > 0 ? most_group_tiles(p, c) : 0;
    const std::int64_t all_tiles = c.prefixes ? 2 * tiles + of_groups : tiles;
    const std::int64_t most_keys = checked_blocks(all_tiles * std::max<std::int64_t>(1, blocks_of(p.seqlen_k, c.Bc)));
    launch.blocks = std::min(blocks_at_a_time(q, c), most_keys);
    launch.early = true;
    if (launch.blocks == 0) return;
    plan.part_queries = static_cast<int>(p.seqlen_q);
    plan.part_rows = static_cast<int>(std::min<std::int64_t>(c.Br, p.seqlen_q * c.group_rows));
    plan.share_blocks = static_cast<unsigned>(launch.blocks);
    plan.rounded_shares = keys_hold_values(c);
    const std::int64_t sequences = c.prefixes ? 2 * p.batch + p.prefix_groups : p.batch;
    const std::int64_t part_rows =
        c.prefixes ? checked_blocks((2 * tiles + launch.blocks) * plan.part_rows + (of_groups + launch.blocks) * c.Br)
                   : 2 * launch.blocks * plan.part_rows;
    const auto rows = static_cast<std::size_t>(part_rows);
    plan.workspace.add(Region::first_unit, static_cast<std::size_t>(sequences + 1) * sizeof(std::uint32_t));
    plan.workspace.add(Region::part_o, rows * static_cast<std::size_t>(p.head_dim_v) * sizeof(float));
    plan.workspace.add(Region::part_ml, rows * 2 * sizeof(float));
}

// Of a section, those with most keys go first, and its last ones fill up what these leave: three rounds of tiles do. K
// and V of so few heads are in the L2 cache together.
int section_heads(const Problem& p, const Launch& launch) {
    constexpr std::int64_t kRounds = 3;
    const std::int64_t of_head = std::max<std::int64_t>(1, blocks_of(p.seqlen_q, launch.config.Br));
    return static_cast<int>(std::clamp<std::int64_t>(blocks_of(kRounds * launch.blocks, static_cast<int>(of_head)), 1,
                                                     std::max<std::int64_t>(1, p.heads * p.batch)));
}

}  // namespace

bool has_uneven_tiles(const KernelConfig& c) {
    return c.band || c.uneven_in_memory();
}

void add_forward_launches(const Question& q, Launch launch, Plan& plan) {
    const Problem& p = q.problem;
    const KernelConfig& c = launch.config;
    plan.page_box = page_box(c, p);
    const std::int64_t tiles = most_tiles(p, c);
    if (c.shares) {
        share_out(q, tiles, launch, plan);
    } else {
        // Where only the device knows what there is to do, tiles are dealt out as they are asked for: how many have
        // been is counted.
        // mask_blocks clears the count, where there is a block for it.
        if (tiles > 0 && c.uneven_in_memory())
            plan.workspace.add(Region::ticket, sizeof(std::uint32_t), !c.mask_function || p.seqlen_k == 0);
        // Persistent, as many thread blocks as there is room for at a time, where tiles are unequal or short; long
        // equal ones gain nothing.
        const bool persistent = has_uneven_tiles(c) || p.seqlen_k < kLongKeys || p.sm_limit != 0;
        launch.blocks = persistent ? std::min(tiles, blocks_at_a_time(q, c)) : tiles;
        if (orders_lines(c)) plan.section_heads = section_heads(p, launch);
        if (!c.uneven_in_memory())
            plan.rounds = tile_rounds(static_cast<unsigned>(blocks_of(p.seqlen_q * c.group_rows, c.Br)),
                                      static_cast<unsigned>((c.group_rows > 1 ? p.kv_heads : p.heads) * p.batch),
                                      static_cast<unsigned>(launch.blocks), c.band);
    }

    launch.maps.push_back({MappedOperand::q, c.Br});
    const bool streamed = c.shares && !keys_hold_values(c);
    launch.maps.push_back({MappedOperand::k, plan.page_box, true, streamed});
    if (!keys_hold_values(c)) launch.maps.push_back({MappedOperand::v, plan.page_box, true, streamed});
    if (output_parts(c) > 0) launch.maps.push_back({MappedOperand::out, kConsumerRows});
    if (c.bias_mapped) launch.maps.push_back({MappedOperand::bias, c.Br});
    plan.launches.push_back(launch);
    if (c.shares && launch.blocks > 0 && (c.prefixes || p.seqlen_k > c.Bc))
        plan.launches.push_back(combine_launch(q, c, launch.blocks / tiles + 2, plan));
}

}  // namespace flashtile::gpu
