// function_source.h: a call's score and mask functions as CUDA C++, which kernels call
// (kernels/parts/common/functions.h).
#pragma once

#include <string>

namespace flashtile::gpu {

// The name by which kernels include it.
inline constexpr const char* kFunctionFile = "cuda/kernels/given_functions.h";

// The text for the functions with this number (functions/functions.h). It depends on what they compute alone, not on
// the number, the names of tensors or how the functions are written, so that equal ones share a kernel in the cache.
// With near_positions (KernelConfig) ints are as narrow as it is known that they may be.
std::string function_source(int number, bool near_positions);

}  // namespace flashtile::gpu
