// conditions_sm90.h: what all kernels made for Hopper ask for.
#pragma once

#include <algorithm>

#include "cuda/plan/candidate.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {

inline constexpr Condition kConditionsSm90[] = {
    {"the GPU is not of compute capability 9.0", [](const Question& q) { return q.device.architecture == 90; }},
    {"wgmma would round fp32 to TF32", [](const Question& q) { return q.config.element != Element::fp32; }},
    {"TMA wants addresses and strides in multiples of 16 bytes, and no broadcast",
     [](const Question& q) { return q.access.tensor_maps && q.config.vector_bytes == 16; }},
    {"batch_invariant: a row's bits may not depend on where tensors lie",
     [](const Question& q) { return !q.problem.batch_invariant; }},
};

// What those ask for that know no e4m3, nor an out that is not like q.
inline constexpr Condition kOneElement{
    "k and v in e4m3, or an out of another type than q, which other kernels have so far",
    [](const Question& q) { return !q.config.converts_kv && output_element(q.config) == q.config.element; }};

// What those ask for that are not for latent heads.
inline constexpr Condition kAtMost256{"a head dimension over 256", [](const Question& q) {
                                          return std::max(q.config.head_dim, q.config.head_dim_v) <= 256;
                                      }};

inline constexpr Condition kDropsInSquares{
    "dropout of a shard whose first row or column is no multiple of 16, or lies in memory",
    [](const Question& q) { return !q.config.shifted_dropout; }};
inline constexpr Condition kOneDiagonal{"diagonals, which the general kernel has so far",
                                        [](const Question& q) { return !q.config.diagonals; }};

// What Hopper's forward kernels leave to the general one.
inline constexpr Condition kNoTree{"tree_mask, which the general kernel has so far",
                                   [](const Question& q) { return !q.config.tree_mask; }};
inline constexpr Condition kNoForcedSplits{"num_splits, which the general kernel has so far",
                                           [](const Question& q) { return q.problem.num_splits <= 1; }};
inline constexpr Condition kPagesFillBoxes{
    "pages of which TMA would load fewer than 16 rows at a time",
    [](const Question& q) { return !q.config.paged || q.problem.page_size % kLeastPageBox == 0; }};

}  // namespace flashtile::gpu
