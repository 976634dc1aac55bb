// exports.h: how the emulated driver's functions are defined, and how it words its errors.
#pragma once

#include <string>

#include "cuda/driver_types.h"

#define EMULATED extern "C" __attribute__((visibility("default"))) ::flashtile::gpu::CUresult

namespace emulator {

inline constexpr auto kNotSupported = static_cast<flashtile::gpu::CUresult>(801);  // CUDA_ERROR_NOT_SUPPORTED
inline constexpr auto kLaunchFailed = static_cast<flashtile::gpu::CUresult>(719);  // CUDA_ERROR_LAUNCH_FAILED

// Remembers why for cuGetErrorString, and prints it, since not everyone asks; returns `result`.
flashtile::gpu::CUresult failed(flashtile::gpu::CUresult result, const std::string& why);

}  // namespace emulator
