// block_map.cpp: see block_map.h.
#include "cuda/plan/block_map.h"

#include "cuda/plan/limits.h"
#include "functions/functions.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

// Of fewer keys a launch costs more than the blocks that it may save.
constexpr std::int64_t kWorthAMap = 256;
constexpr int kWarps = 8;  // each has a block of scores

// What the function depends on, and which blocks the band hides anyway.
KernelConfig map_config(const KernelConfig& main) {
    KernelConfig c;
    c.kernel = Kernel::mask_blocks;
    c.element = main.element;
    c.Br = main.Br;
    c.Bc = main.Bc;
    c.warps = kWarps;
    c.band = main.band;
    c.window = main.window;
    c.packed = main.packed;
    c.seqused = main.seqused;
    c.diagonals = main.diagonals;
    c.functions = main.functions;
    c.mask_function = true;
    c.near_positions = main.near_positions;
    c.map_of_keys = main.map_of_keys;
    return c;
}

bool walks(const KernelConfig& c) {
    return c.kernel == Kernel::forward_sm90 || c.kernel == Kernel::backward_sm90;
}

// Whether all sequences have the same map.
bool alike(const Question& q, const functions::Functions& given) {
    return !given.mask_depends_on(functions::Op::b) && !q.config.lengths_differ() && !q.config.diagonals &&
           !q.problem.origins_i && !q.problem.origins_j;
}

}  // namespace

void add_block_map(const Question& q, const KernelConfig& main, Plan& plan) {
    const Problem& p = q.problem;
    if (!main.mask_function || (!walks(main) && p.seqlen_k < kWorthAMap)) return;
    const functions::Functions& given = functions::functions_of(p.functions);
    plan.block_map_batch = alike(q, given) && p.batch > 0 ? 1 : static_cast<int>(p.batch);
    plan.block_map_heads = given.mask_depends_on(functions::Op::h) ? static_cast<int>(p.heads) : 1;
    const bool of_keys = main.map_of_keys;
    const std::int64_t lines = of_keys ? blocks_of(p.seqlen_k, main.Bc) : blocks_of(p.seqlen_q, main.Br);
    const std::int64_t words = of_keys ? blocks_of(p.seqlen_q, 32 * main.Br) : blocks_of(p.seqlen_k, 32 * main.Bc);
    const std::int64_t pairs =
        checked_blocks(std::int64_t{plan.block_map_batch} * plan.block_map_heads * lines * words);
    const KernelConfig config = map_config(main);
    plan.launches.push_back({.config = config,
                             .shared_memory = shared_bytes(config),
                             .blocks = checked_blocks(pairs * (32 / kWarps)),
                             .why = "a warp for each block of scores"});
    plan.workspace.add(Region::block_map, static_cast<std::size_t>(pairs) * 2 * sizeof(std::uint32_t));
}

}  // namespace flashtile::gpu
