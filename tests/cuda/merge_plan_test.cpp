// merge_plan_test.cpp: the launch of a merge: loads as wide as every row is aligned, and thread blocks for every row.
#include "cuda/plan/merge.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace flashtile::gpu {
namespace {

MergeProblem problem(DType dtype, DType out_dtype, std::int64_t head_dim) {
    return {dtype, out_dtype, 3, 2, 100, 4, head_dim};
}

// Operands in row-major order, at addresses that are a multiple of `alignment` and of no larger power of two.
MergeOperands operands(const MergeProblem& p, std::uintptr_t alignment) {
    const auto rows = [&](DType dtype) {
        return Operand{reinterpret_cast<void*>(0x10000 + alignment),
                       dtype,
                       p.seqlen * p.heads * p.head_dim,
                       p.heads * p.head_dim,
                       p.head_dim,
                       1};
    };
    MergeOperands x;
    x.outs = rows(p.dtype);
    x.outs_stride_part = p.rows() * p.head_dim;
    x.out = rows(p.out_dtype);
    return x;
}

int vector_bytes(const MergeProblem& p, std::uintptr_t alignment) {
    return merge_vector_bytes(p, operands(p, alignment));
}

TEST(MergePlan, LoadsAreAsWideAsRowsAreAligned) {
    EXPECT_EQ(vector_bytes(problem(DType::bf16, DType::bf16, 128), 256), 16);
    EXPECT_EQ(vector_bytes(problem(DType::bf16, DType::bf16, 128), 8), 8);
    EXPECT_EQ(vector_bytes(problem(DType::bf16, DType::bf16, 100), 256), 8);
    EXPECT_EQ(vector_bytes(problem(DType::bf16, DType::bf16, 57), 256), 2);
    EXPECT_EQ(vector_bytes(problem(DType::fp32, DType::fp32, 57), 256), 4);
    // what is loaded at once is stored at once, in pieces of at most 16 bytes
    EXPECT_EQ(vector_bytes(problem(DType::fp16, DType::fp32, 128), 256), 16);
    EXPECT_EQ(vector_bytes(problem(DType::fp16, DType::fp32, 128), 8), 4);
    EXPECT_EQ(vector_bytes(problem(DType::fp32, DType::bf16, 128), 256), 16);
    EXPECT_EQ(vector_bytes(problem(DType::fp32, DType::bf16, 128), 4), 4);
    const MergeProblem p = problem(DType::bf16, DType::bf16, 64);
    MergeOperands shifted = operands(p, 256);
    shifted.outs_stride_part += 1;
    EXPECT_EQ(merge_vector_bytes(p, shifted), 2);
}

TEST(MergePlan, HasAThreadBlockForEveryRow) {
    const DeviceFacts& device = known_device("A100-80");
    const auto blocks = [&](std::int64_t head_dim, int bytes) {
        return plan_merge(problem(DType::bf16, DType::bf16, head_dim), bytes, device).blocks;
    };
    EXPECT_EQ(blocks(128, 16), 800 / 8);  // 16 lanes a row, 128 threads a block
    EXPECT_EQ(blocks(64, 16), 800 / 16);  // 8 lanes
    EXPECT_EQ(blocks(512, 16), 800 / 4);  // a warp takes a row in two steps
    EXPECT_EQ(blocks(57, 2), 800 / 4);    // a warp, whose last lanes idle in the second
    EXPECT_EQ(blocks(8, 16), (800 + 127) / 128);
    EXPECT_EQ(plan_merge({DType::bf16, DType::bf16, 2, 4, 0, 8, 64}, 16, device).blocks, 0);
}

TEST(MergePlan, RefusesWhatTheKernelDoesNotCount) {
    MergeProblem p = problem(DType::bf16, DType::bf16, 64);
    DeviceFacts old = known_device("A100-80");
    old.architecture = 75;
    EXPECT_THROW(plan_merge(p, 16, old), Error);
    p.seqlen = std::int64_t{1} << 28;
    EXPECT_THROW(plan_merge(p, 16, known_device("H200")), Error);
}

}  // namespace
}  // namespace flashtile::gpu
