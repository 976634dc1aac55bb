// kernels.h: from a KernelConfig to a function that can be launched: looked up in this process, then in the bundle,
// then on disk, then rendered and compiled.
#pragma once

#include "cuda/device.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {

struct LoadedKernel {
    CUfunction function = nullptr;
};

// The kernel for this configuration on this device (its primary context is current). A warm call takes one look into a
// table: no rendering, hashing of sources, allocation, environment or file access. `shared_memory` is the dynamic
// shared memory that launches will ask for; the function is allowed that much when it is loaded.
const LoadedKernel& kernel_for(const KernelConfig& config, const Device& device, int shared_memory);

}  // namespace flashtile::gpu
