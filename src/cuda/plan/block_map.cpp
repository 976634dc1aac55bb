// block_map.cpp: see block_map.h.
#include "cuda/plan/block_map.h"

#include "cuda/plan/limits.h"
#include "functions/functions.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

// Of fewer keys a launch costs more than the blocks that it may save.
constexpr std::int64_t kWorthAMap = 256;
constexpr int kWarps = 8;  // share 32 blocks of scores

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
    c.mask_function = true;
    c.block_lists = main.block_lists;
    if (!c.block_lists) {  // which say enough
        c.functions = main.functions;
        c.near_positions = main.near_positions;
    }
    c.map_of_keys = main.map_of_keys;
    return c;
}

bool walks(const KernelConfig& c) {
    return c.kernel == Kernel::forward_sm90 || c.kernel == Kernel::backward_sm90;
}

// Whether all sequences have the same map.
bool alike(const Question& q) {
    const Problem& p = q.problem;
    if (q.config.lengths_differ() || q.config.diagonals) return false;
    if (p.block_q != 0) return p.list_batch == 1;
    return !functions::functions_of(p.functions).mask_depends_on(functions::Op::b) && !p.origins_i && !p.origins_j;
}
// Or heads have maps of their own.
bool by_head(const Problem& p) {
    return p.block_q != 0 ? p.list_heads > 1 : functions::functions_of(p.functions).mask_depends_on(functions::Op::h);
}

}  // namespace

void add_block_map(const Question& q, const KernelConfig& main, Plan& plan) {
    const Problem& p = q.problem;
    if (!main.mask_function || (!walks(main) && p.seqlen_k < kWorthAMap)) return;
    plan.block_map_batch = alike(q) && p.batch > 0 ? 1 : static_cast<int>(p.batch);
    plan.block_map_heads = by_head(p) ? static_cast<int>(p.heads) : 1;
    const bool of_keys = main.map_of_keys;
    const std::int64_t lines = of_keys ? blocks_of(p.seqlen_k, main.Bc) : blocks_of(p.seqlen_q, main.Br);
    const std::int64_t words = of_keys ? blocks_of(p.seqlen_q, 32 * main.Br) : blocks_of(p.seqlen_k, 32 * main.Bc);
    const std::int64_t pairs =
        checked_blocks(std::int64_t{plan.block_map_batch} * plan.block_map_heads * lines * words);
    const KernelConfig config = map_config(main);
    plan.launches.push_back({.config = config,
                             .shared_memory = shared_bytes(config),
                             .blocks = pairs,
                             .why = "a few lanes, or a warp, for each block of scores"});
    plan.workspace.add(Region::block_map, static_cast<std::size_t>(pairs) * 2 * sizeof(std::uint32_t));
}

}  // namespace flashtile::gpu
