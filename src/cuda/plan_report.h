// plan_report.h: which kernels a problem gets on a GPU that need not be here, and why, for people and programs.
#pragma once

#include <string>

#include "core/problem.h"
#include "cuda/plan/plan.h"

namespace flashtile::gpu {

// JSON: for forward and backward the candidate that runs, by the name of its main kernel, and those that were passed
// over, each with its reason; the kernels that are launched, in order, with their tiles and reasons, or why none
// serves; and as "alternatives" the tiles that `flashtile tune` measures, the table's own first. `compile`: with what
// the compiler says of registers, where there is one; that takes seconds a kernel.
std::string plan_report(const Problem& problem, const Access& access, const DeviceFacts& device, bool compile);

}  // namespace flashtile::gpu
