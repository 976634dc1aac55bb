// block_kinds.cpp: see block_kinds.h.
#include "cuda/plan/block_kinds.h"

#include "cuda/plan/limits.h"

namespace flashtile::gpu {

void add_block_kinds(const Question& q, Plan& plan) {
    const Problem& p = q.problem;
    if (p.block_q == 0) return;
    KernelConfig c;
    c.kernel = Kernel::block_kinds;
    c.element = q.config.element;
    c.lists_alone = q.config.lists_alone;
    c.warps = 8;
    const std::int64_t lines = p.list_batch * p.list_heads * p.query_blocks();
    plan.launches.push_back(
        {.config = c, .blocks = checked_blocks(blocks_of(lines, c.warps)), .why = "a warp for each block of queries"});
    plan.workspace.add(Region::block_kinds, static_cast<std::size_t>(lines * p.key_blocks()));
}

}  // namespace flashtile::gpu
