// merge.h: the checks of flashtile_merge.
#pragma once

#include "core/merge_problem.h"

namespace flashtile::api {

struct MergeCall {
    MergeProblem problem;
    MergeOperands operands;
    Execution execution;
};

MergeCall validate_merge(const flashtile_options* options, const flashtile_merge_tensors* tensors);

}  // namespace flashtile::api
