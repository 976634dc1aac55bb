// merge.cpp: see merge.h.
#include "cuda/plan/merge.h"

#include <algorithm>
#include <limits>

#include "cuda/plan/candidate.h"
#include "cuda/plan/limits.h"
#include "shared/merge_params.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() - 1024;

// The bytes to which every row of a tensor is aligned. `stride_part` is 0 for the output.
int row_alignment(const MergeProblem& p, const Operand& t, std::int64_t stride_part) {
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::uint64_t>(elements * size_of(t.dtype)); };
    return alignment_of(reinterpret_cast<std::uintptr_t>(t.data) | bytes(p.head_dim) | bytes(stride_part) |
                        bytes(t.stride_batch) | bytes(t.stride_row) | bytes(t.stride_head));
}

}  // namespace

int merge_vector_bytes(const MergeProblem& p, const MergeOperands& x) {
    const auto size = static_cast<int>(size_of(p.dtype)), out_size = static_cast<int>(size_of(p.out_dtype));
    const int out_alignment = row_alignment(p, x.out, 0);
    int piece = row_alignment(p, x.outs, x.outs_stride_part) / size;
    while (std::min(piece * out_size, 16) > out_alignment) piece /= 2;
    return piece * size;
}

Launch plan_merge(const MergeProblem& p, int vector_bytes, const DeviceFacts& device) {
    check_architecture(device);
    if (p.rows() > kMostRows)
        unsupported("batch x seqlen x heads is " + std::to_string(p.rows()) + ", supported on CUDA is at most " +
                    std::to_string(kMostRows));
    KernelConfig c;
    c.kernel = Kernel::merge;
    c.element = element_of(p.dtype);
    c.out_element = element_of(p.out_dtype);
    c.head_dim_v = static_cast<int>(p.head_dim);
    c.vector_bytes = vector_bytes;
    c.warps = 4;
    const std::int64_t rows = c.warps * 32 / row_lanes(c);
    return {.config = c, .blocks = (p.rows() + rows - 1) / rows, .why = "a row's columns side by side in a warp"};
}

std::vector<KernelConfig> merge_configs_for(const Problem& problem, const DeviceFacts& device) {
    std::vector<KernelConfig> configs;
    for (const DType dtype : {problem.dtype, DType::fp32}) {
        const MergeProblem merge{dtype, problem.dtype, 2, 1, 1, problem.heads, problem.head_dim_v};
        MergeOperands contiguous;  // without addresses and strides, which would be multiples of a row
        contiguous.outs.dtype = merge.dtype;
        contiguous.out.dtype = merge.out_dtype;
        configs.push_back(plan_merge(merge, merge_vector_bytes(merge, contiguous), device).config);
    }
    return configs;
}

}  // namespace flashtile::gpu
