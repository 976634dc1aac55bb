// conditions_sm90.h: what all kernels made for Hopper ask for.
#pragma once

#include <algorithm>

#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

inline constexpr Condition kConditionsSm90[] = {
    {"the GPU is not of compute capability 9.0", [](const Question& q) { return q.device.architecture == 90; }},
    {"wgmma would round fp32 to TF32", [](const Question& q) { return q.config.element != Element::fp32; }},
    {"TMA wants addresses and strides in multiples of 16 bytes, and no broadcast",
     [](const Question& q) { return q.access.tensor_maps && q.config.vector_bytes == 16; }},
    {"batch_invariant: a row's bits may not depend on where tensors lie",
     [](const Question& q) { return !q.problem.batch_invariant; }},
};

// What those ask for that are not for latent heads.
inline constexpr Condition kAtMost256{"a head dimension over 256", [](const Question& q) {
                                          return std::max(q.config.head_dim, q.config.head_dim_v) <= 256;
                                      }};

}  // namespace flashtile::gpu
