// forward_sm80.h: what the candidates that run the general forward kernel have in common.
#pragma once

#include "core/problem.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {

// Where the registers of a thread block do not hold all columns of O, several thread blocks share them.
void slice_values(KernelConfig& config, const Problem& problem);

}  // namespace flashtile::gpu
