// block_map.cpp: see block_map.h.
#include "cuda/plan/block_map.h"

#include "cuda/plan/limits.h"
#include "functions/functions.h"

namespace flashtile::gpu {
namespace {

// Of fewer keys a launch costs more than the blocks that it may save.
constexpr std::int64_t kWorthAMap = 256;

// What the function depends on, and which blocks the band hides anyway.
KernelConfig map_config(const KernelConfig& main) {
    KernelConfig c;
    c.kernel = Kernel::mask_blocks;
    c.element = main.element;
    c.Br = main.Br;
    c.Bc = main.Bc;
    c.warps = 8;
    c.band = main.band;
    c.window = main.window;
    c.packed = main.packed;
    c.seqused = main.seqused;
    c.diagonals = main.diagonals;
    c.mask_function = true;
    c.block_lists = main.block_lists;
    if (!c.block_lists) c.functions = main.functions;  // lists say enough
    return c;
}

}  // namespace

void add_block_map(const Question& q, const KernelConfig& main, Plan& plan) {
    const Problem& p = q.problem;
    if (!main.mask_function || p.seqlen_k < kWorthAMap) return;
    const bool by_head = p.block_q != 0
                             ? p.list_heads > 1
                             : functions::functions_of(p.functions).mask_depends_on(functions::Op::h);
    plan.block_map_heads = by_head ? static_cast<int>(p.heads) : 1;
    const std::int64_t words = checked_blocks(p.batch * plan.block_map_heads * blocks_of(p.seqlen_q, main.Br) *
                                              blocks_of(p.seqlen_k, 32 * main.Bc));
    plan.launches.push_back({.config = map_config(main), .blocks = words, .why = "32 blocks of keys a block"});
    plan.workspace.add(Region::block_map, static_cast<std::size_t>(words) * sizeof(std::uint32_t), true);
}

}  // namespace flashtile::gpu
