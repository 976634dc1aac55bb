// launch.h: puts a launch of a plan on a stream.
#pragma once

#include "core/merge_problem.h"
#include "core/problem.h"
#include "core/quantize_problem.h"
#include "cuda/device.h"
#include "cuda/plan/plan.h"
#include "shared/kernel_params.h"
#include "shared/merge_params.h"
#include "shared/quantize_params.h"

namespace flashtile::gpu {

// What all kernels of a plan get, but for where the workspace lies and for maps.
KernelParams params_of(const Plan& plan, const Problem& problem, const Operands& operands);

MergeParams params_of(const MergeProblem& problem, const MergeOperands& operands);

QuantizeParams params_of(const QuantizeProblem& problem, const QuantizeOperands& operands);  // for each step

// Tells kernels where a region of the workspace lies.
void set_region(KernelParams& params, Region name, CUdeviceptr address);

// Asynchronous. `params` is the struct that the kernel takes (kernel_names.h). Throws DEVICE_ERROR with the config
// where the driver refuses.
void launch(const Launch& launch, const void* params, const Device& device, CUstream stream);

}  // namespace flashtile::gpu
