// modules.h: loaded kernels and their launches.
#pragma once

#include <vector>

#include "cuda/driver_types.h"
#include "emulator/driver/grid.h"

namespace emulator {

// A launch with a copy of its parameters, as a graph keeps it.
flashtile::gpu::CUresult run(const Kernel& kernel, const LaunchShape& shape, void* const* parameters);

}  // namespace emulator
