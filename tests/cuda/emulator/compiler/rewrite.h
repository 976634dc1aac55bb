// rewrite.h: from a CUDA program to a C++ program: the headers of kernels/ptx give way to the emulator's own, and
// dynamic shared memory becomes a macro.
#pragma once

#include <string>
#include <vector>

#include "emulator/compiler/compile.h"

namespace emulator {

// All files of the program, those of the emulator among them.
std::vector<File> rewritten(const Program& program);

// The files that the emulator adds or puts in place of others.
std::vector<File> own_files();

// What an option of NVRTC's defines; "" if nothing.
std::string architecture_macro(const std::string& option);

}  // namespace emulator
