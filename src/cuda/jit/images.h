// images.h: from a KernelConfig to machine code, wherever it can be had from at the least cost: the bundles, this
// process's memory, the disk, the compiler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/jit/bundle.h"
#include "cuda/jit/disk_cache.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {

// Compiles at most once at a time, however many threads ask. Throws UNSUPPORTED where nothing has it and there is no
// NVRTC, DEVICE_ERROR where it does not compile.
std::string image_for(const KernelConfig& config, int architecture);

// The same without the bundles and without a word on the terminal, for a bundle that is being made: what an earlier one
// had compiled, even if it was not finished, comes from the disk. Throws as image_for does.
std::string image_for_bundle(const KernelConfig& config, int architecture);

// Later look-ups will find the kernels of this file first. FLASHTILE_BUNDLE loads one by itself. Throws
// INVALID_ARGUMENT.
void load_bundle(const std::string& path);

// Those loaded, and kernels.ftb beside the library; throws what is wrong with the file of FLASHTILE_BUNDLE.
std::vector<std::shared_ptr<const Bundle>> bundles();

// Why kernels.ftb beside the library is not used, or "" where it is or there is none.
std::string why_no_own_bundle();

// The cache of this process.
const DiskCache& disk_cache();

}  // namespace flashtile::gpu
