// compile.h: from a KernelConfig to machine code for an architecture, or to PTX where NVRTC is older than the GPU.
#pragma once

#include "cuda/jit/program.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {

// The program that is compiled for a config: rendered source, what it includes, options. `newest` is as in program.h.
Program program_for(const KernelConfig& config, int architecture, int newest = 0);

struct Compiled {
    std::string image;
    std::string log;
};

// Throws DEVICE_ERROR with the config and the whole log. `report` has ptxas say in the log what the kernel uses.
Compiled compile(const KernelConfig& config, int architecture, bool report = false);

// Where NVRTC is older than the GPU, so that the driver must finish what it makes: that, in words; else "".
std::string ptx_note(int architecture);

}  // namespace flashtile::gpu
