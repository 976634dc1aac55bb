// compile.h: from a KernelConfig to machine code for an architecture, or to PTX where NVRTC is older than the GPU.
#pragma once

#include "cuda/jit/nvrtc.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {

// The program that is compiled for a config: rendered source, what it includes, options. `newest` is the newest
// architecture that the compiler knows, or 0 for one that knows every architecture.
Program program_for(const KernelConfig& config, int architecture, int newest = 0);

// Names the program's outcome: the SHA-256 of every byte that goes in, and of the compiler's version. No path, no time.
// Version 0: whichever compiler made it, as in a bundle.
std::string key_of(const Program& program, int compiler_version = 0);

struct Compiled {
    std::string image;
    std::string log;
};

// Throws DEVICE_ERROR with the config and the whole log. `report` has ptxas say in the log what the kernel uses.
Compiled compile(const KernelConfig& config, int architecture, bool report = false);

// "sm_80", "sm_90a": the target whose machine code the kernels of an architecture are.
std::string target_name(int architecture);

}  // namespace flashtile::gpu
