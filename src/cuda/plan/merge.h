// merge.h: the plan of merging partial results: one launch.
#pragma once

#include "core/merge_problem.h"
#include "cuda/plan/plan.h"

namespace flashtile::gpu {

// Of one load from the parts: what they and out are aligned to.
int merge_vector_bytes(const MergeProblem& problem, const MergeOperands& operands);

// Throws UNSUPPORTED for a GPU that is too old, and for more rows than the kernel counts.
Launch plan_merge(const MergeProblem& problem, int vector_bytes, const DeviceFacts& device);

// The configs that merging what a problem's forward passes wrote needs, where the parts are of its dtype or fp32.
std::vector<KernelConfig> merge_configs_for(const Problem& problem, const DeviceFacts& device);

}  // namespace flashtile::gpu
