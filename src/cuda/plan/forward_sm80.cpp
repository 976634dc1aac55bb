// forward_sm80.cpp: the forward kernel that serves every GPU: its tiles, and slices of O where the registers of a
// thread block do not hold all its columns.
#include "cuda/plan/forward_sm80.h"

#include <algorithm>

#include "cuda/plan/block_map.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm80.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {

void slice_values(KernelConfig& c, const Problem& p) {
    const int most = c.element == Element::fp32 ? sm80::kMostValueColumnsFp32 : sm80::kMostValueColumns;
    c.value_slices = static_cast<int>(blocks_of(c.head_dim_v, most));
    if (c.value_slices <= 1) return;
    c.head_dim_v = round_up(static_cast<int>(blocks_of(p.head_dim_v, c.value_slices)), 16);
    // the last slice starts where it must to end with the last column
    const auto last = static_cast<std::uint64_t>((p.head_dim_v - c.head_dim_v) * size_of(p.dtype));
    c.vector_bytes = std::min(c.vector_bytes, alignment_of(last));
}

namespace {

constexpr std::int64_t kAnyLength[] = {1};

std::span<const Tile> table_for(const KernelConfig& c) {
    if (c.element == Element::fp32) return sm80::kForwardFp32;
    if (c.scale_first || c.softcap || c.mask || c.mask_function || c.dropout) return sm80::kForwardWithOptions;
    if (c.lengths_differ()) return sm80::kForwardPacked;
    return sm80::kForward;
}

std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = forward_config(q, Kernel::forward_sm80);
    slice_values(c, q.problem);
    return first_fit(c, table_for(c), q.device);
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    Launch launch = main;
    launch.blocks = checked_blocks(query_blocks(q.problem, main.config.Br) * main.config.value_slices);
    add_block_map(q, main.config, plan);
    plan.main_launch = plan.launches.size();
    plan.launches.push_back(launch);
}

constexpr Condition kConditions[] = {kOneElement};

}  // namespace

constinit const Candidate forward_sm80 = {"forward_sm80", {kConditions}, main_launch, complete, kAnyLength, kAnyLength};

}  // namespace flashtile::gpu
