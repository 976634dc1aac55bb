// launch.h: puts a launch of a plan on a stream.
#pragma once

#include "core/problem.h"
#include "cuda/device.h"
#include "cuda/plan/plan.h"
#include "shared/kernel_params.h"

namespace flashtile::gpu {

// What all kernels of a plan get, but for where the workspace lies and for maps.
KernelParams params_of(const Plan& plan, const Problem& problem, const Operands& operands);

// Tells kernels where a region of the workspace lies.
void set_region(KernelParams& params, Region name, CUdeviceptr address);

// Asynchronous. Throws DEVICE_ERROR with the config where the driver refuses.
void launch(const Launch& launch, const KernelParams& params, const Device& device, CUstream stream);

}  // namespace flashtile::gpu
