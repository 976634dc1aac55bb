// tensor_map.h: what TMA is told of the operands that a launch names.
#pragma once

#include "core/problem.h"
#include "cuda/plan/plan.h"
#include "shared/kernel_params.h"

namespace flashtile::gpu {

// True where TMA can read the operands as they lie: 16-byte alignment, and no broadcast dimension.
bool can_map(const Problem& problem, const Operands& operands);

// The same of the bias: rows and columns of its own, in the inputs' type.
bool can_map_bias(const Problem& problem, const Operands& operands);

// Fills the maps that a launch names, and the rows at which they start.
void set_maps(KernelParams& params, const Launch& launch, const Problem& problem, const Operands& operands);

}  // namespace flashtile::gpu
