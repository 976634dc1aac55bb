// merge_problem.h: the validated problem of merging partial results, as problem.h has that of attention.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace flashtile {

struct MergeProblem {
    DType dtype = DType::unset;  // of the parts
    DType out_dtype = DType::unset;
    std::int64_t parts = 0;
    std::int64_t batch = 0;  // 1, when packed
    std::int64_t seqlen = 0;
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;

    std::int64_t rows() const { return batch * seqlen * heads; }  // of out
    bool operator==(const MergeProblem&) const = default;
};

// outs and lses are the first part's, and the distance to the next is stride_part elements.
struct MergeOperands {
    Operand outs, lses;
    std::int64_t outs_stride_part = 0, lses_stride_part = 0;
    Operand out, lse;  // lse may be absent
};

}  // namespace flashtile
