// block_map.h: a launch that finds out of which blocks a mask function shows something, and of which all, before the
// main kernel.
#pragma once

#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

// Adds it, and the map's region, where the problem has a mask function and keys enough. `main` is the kernel that reads
// the map, whose blocks it counts.
void add_block_map(const Question& question, const KernelConfig& main, Plan& plan);

}  // namespace flashtile::gpu
