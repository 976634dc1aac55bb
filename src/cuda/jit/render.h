// render.h: from a KernelConfig to the text of its translation unit.
#pragma once

#include <string>

#include "shared/kernel_config.h"

namespace flashtile::gpu {

// The C++ that makes the config, with every field: in the rendered source, in messages and in `info`.
std::string to_string(const KernelConfig& config);

// The file that holds the kernel, as it is included.
std::string kernel_file(Kernel kernel);

// The whole translation unit; the kernel's name in it is kKernelName. A `stress` other than 0 is the seed of the waits
// that make a kernel's warps run in unusual orders (cuda/kernels/ptx/stress.h).
std::string render(const KernelConfig& config, unsigned stress = 0);

inline constexpr const char* kKernelName = "flashtile_kernel";

}  // namespace flashtile::gpu
