// tensor_map.h: what Hopper's copy engine is told of q, k, v and dout.
#pragma once

#include "core/problem.h"
#include "cuda/plan.h"
#include "shared/kernel_params.h"

namespace flashtile::gpu {

// True where the copy engine can read the operands as they lie: 16-byte alignment, and no broadcast dimension.
bool can_map(const Problem& problem, const Operands& operands);

// The same of the bias: rows and columns of its own, in the inputs' type.
bool can_map_bias(const Problem& problem, const Operands& operands);

// Fills the maps of a forward_sm90 or backward_sm90 launch. Keys that no query sees, and in backward queries that see
// no key, lie outside them and arrive as zero.
void set_maps(KernelParams& params, const KernelConfig& config, const Problem& problem, const Operands& operands);

}  // namespace flashtile::gpu
