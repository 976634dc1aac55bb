// load.h: from machine code to a function on a device.
#pragma once

#include <string>

#include "cuda/device.h"
#include "cuda/jit/kernels.h"

namespace flashtile::gpu {

// Loads the image into the device's primary context, which is current, and allows its kernel so much dynamic shared
// memory. Works while a stream is being captured. Throws DEVICE_ERROR with the config and the driver's log.
LoadedKernel load(const std::string& image, const KernelConfig& config, const Device& device, int shared_memory);

}  // namespace flashtile::gpu
