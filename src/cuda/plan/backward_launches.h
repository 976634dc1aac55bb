// backward_launches.h: what every backward pass launches: prepare, the main kernel, finish, and a pass of its own for
// the gradient of a bias; and the workspace that they share.
#pragma once

#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

// The main kernel's launch is complete. `warps` are those of a thread block of prepare and finish, which take the order
// of dQ's fragments from the main kernel's warps.
void add_backward_launches(const Question& question, const Launch& main, int warps, Plan& plan);

}  // namespace flashtile::gpu
