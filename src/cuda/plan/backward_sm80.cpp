// backward_sm80.cpp: the backward kernel that serves every GPU, and its tiles.
#include "cuda/plan/backward_launches.h"
#include "cuda/plan/block_map.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm80.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kAnyLength[] = {1};

std::span<const Tile> table_for(const KernelConfig& c, const Problem& p) {
    if (c.element == Element::fp32) return sm80::kBackwardFp32;
    if (c.softcap || c.score_function || c.block_lists) return sm80::kBackwardSoftcap;
    if (c.scale_first || c.mask || c.mask_function || c.dropout || c.lengths_differ() || p.batch_invariant)
        return sm80::kBackwardWithOptions;
    return sm80::kBackward;
}

// exact_max changes nothing here: no gradient is made of a P that was rounded.
std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = q.config;
    c.kernel = Kernel::backward_sm80;
    c.deterministic = q.problem.deterministic;
    return first_fit(c, table_for(c, q.problem), q.device);
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    add_block_map(q, main.config, plan);
    Launch launch = main;
    launch.blocks =
        checked_blocks(blocks_of(q.problem.seqlen_k, main.config.Bc) * q.problem.kv_heads * q.problem.batch);
    add_backward_launches(q, launch, main.config.warps, plan);
}

}  // namespace

constinit const Candidate backward_sm80 = {"backward_sm80", {}, main_launch, complete, kAnyLength, kAnyLength};

}  // namespace flashtile::gpu
