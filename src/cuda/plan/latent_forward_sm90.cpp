// latent_forward_sm90.cpp: when Hopper's forward kernel for latent heads (MLA) runs.
#include <bit>
#include <limits>

#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/forward_config.h"
#include "cuda/plan/forward_launches.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm90.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kSeqlensQ[] = {1, kFewQueries + 1}, kAnyLength[] = {1};
constexpr int kWidestElsewhere = 256, kWidest = 576, kWidestValues = 512;

// Where queries are few, thread blocks have equal shares of all keys.
bool shares_keys(const Problem& p) {
    return p.seqlen_q <= kFewQueries && p.num_splits == 0;
}

constexpr Condition kConditions[] = {
    {"no head dimension over 256", [](const Question& q) { return q.config.head_dim > kWidestElsewhere; }},
    {"v is not the first columns of k, in the same memory", [](const Question& q) { return q.access.values_in_keys; }},
    {"head_dim over 576, or head_dim_v over 512",
     [](const Question& q) { return q.config.head_dim <= kWidest && q.config.head_dim_v <= kWidestValues; }},
    {"head_dim_v up to 64, of which two consumers cannot each have a part",
     [](const Question& q) { return q.config.head_dim_v > kChunk; }},
    {"a bias, a boolean mask, ALiBi or dropout",
     [](const Question& q) { return !q.config.has_bias_or_mask() && !q.config.alibi && !q.config.dropout; }},
    {"score_function or mask_function, which the general kernels have so far",
     [](const Question& q) { return !q.config.has_functions(); }},
    kOneElement,
    kNoTree,
    kOneDiagonal,
    {"a prefix that sequences share, which the general kernel has so far",
     [](const Question& q) { return q.problem.prefix_groups == 0; }},
    kPagesFillBoxes,
    kNoForcedSplits,
    {"packed sequences, of which some may have more than 64 queries",
     [](const Question& q) { return !q.config.packed || shares_keys(q.problem); }},
};

// Rows of a tile for each query. All heads of a group share K, and so they share tiles, however many queries there are.
int group_rows(const Problem& p) {
    const auto rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.group())));
    return p.seqlen_q * rows < std::numeric_limits<int>::max() / 2 ? static_cast<int>(rows) : 1;
}

std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = forward_config(q, Kernel::latent_forward_sm90);
    c.group_rows = group_rows(q.problem);
    c.shares = shares_keys(q.problem);
    return first_fit(c, sm90::kLatentForward, q.device);
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    add_forward_launches(q, main, plan);
}

}  // namespace

constinit const Candidate latent_forward_sm90 = {
    "latent_forward_sm90", {kConditionsSm90, kConditions}, main_launch, complete, kSeqlensQ, kAnyLength};

}  // namespace flashtile::gpu
