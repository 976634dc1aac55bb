// program.h: what NVRTC is given for a kernel: its text, what that includes, and options; and the key under which the
// outcome is kept.
#pragma once

#include <string>
#include <vector>

#include "cuda/jit/nvrtc.h"

namespace flashtile::gpu {

// `newest` is the newest architecture up to this one that the compiler knows, or 0 for one that knows every
// architecture.
Program program_of(std::string text, std::vector<SourceFile> headers, int architecture, int newest);

// Names the program's outcome: the SHA-256 of every byte that goes in, and of the compiler's version. No path, no time.
// Version 0: whichever compiler made it, as in a bundle.
std::string key_of(const Program& program, int compiler_version = 0);

// "sm_80", "sm_90a": the target whose machine code the kernels of an architecture are.
std::string target_name(int architecture);

}  // namespace flashtile::gpu
