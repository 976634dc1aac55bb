// append_kv.h: the plan of appending to a cache: one launch.
#pragma once

#include "core/append_problem.h"
#include "cuda/plan/plan.h"

namespace flashtile::gpu {

// Of one load and store: what every row is aligned to, and what pairs that are rotated can be cut into.
int append_vector_bytes(const AppendProblem& problem, const AppendOperands& operands);

// Throws UNSUPPORTED for a GPU that is too old.
Launch plan_append(const AppendProblem& problem, int vector_bytes, const DeviceFacts& device);

// The configs that appending keys and values of a problem's dtype to contiguous caches needs.
std::vector<KernelConfig> append_configs_for(const Problem& problem, const DeviceFacts& device);

}  // namespace flashtile::gpu
