// launch.h: puts a planned kernel on a stream.
#pragma once

#include "core/problem.h"
#include "cuda/device.h"
#include "cuda/plan.h"
#include "shared/kernel_params.h"

namespace flashtile::gpu {

// What all kernels of a problem get; backward adds where its workspace lies.
KernelParams params_of(const Problem& problem, const Operands& operands);

// Asynchronous. Throws DEVICE_ERROR with the config where the driver refuses.
void launch(const PlannedKernel& kernel, const KernelParams& params, const Device& device, CUstream stream);

}  // namespace flashtile::gpu
