// append_plan_test.cpp: the launch of an append: loads as wide as rows are aligned and as pairs can be cut, and a warp
// for each head of each row.
#include "cuda/plan/append_kv.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "cuda/plan/access.h"
#include "decode_problem.h"

namespace flashtile::gpu {
namespace {

AppendProblem problem(std::int64_t pairs, std::int64_t begin = 0) {
    AppendProblem p;
    p.dtype = DType::bf16;
    p.batch = 3, p.seqlen_k = 5, p.rows_k = 15, p.kv_heads = 2;
    p.seqlen_q = 7, p.rows_q = 21, p.heads = 4;
    p.head_dim = 128, p.head_dim_v = 64;
    p.pairs = pairs, p.rotary_begin = begin;
    return p;
}

AppendOperands operands() {
    AppendOperands x;
    Operand rows{reinterpret_cast<void*>(0x10000), DType::bf16, 10240, 256, 128, 1};
    x.k = x.v = x.q = x.q_out = x.k_cache = x.v_cache = rows;
    return x;
}

TEST(AppendPlan, LoadsAreAsWideAsRowsAndPairsAllow) {
    EXPECT_EQ(append_vector_bytes(problem(0), operands()), 16);
    EXPECT_EQ(append_vector_bytes(problem(64), operands()), 16);
    EXPECT_EQ(append_vector_bytes(problem(20), operands()), 8);
    EXPECT_EQ(append_vector_bytes(problem(13), operands()), 2);
    EXPECT_EQ(append_vector_bytes(problem(32, 2), operands()), 4);
    AppendOperands odd = operands();
    odd.v_cache.stride_head = 66;
    EXPECT_EQ(append_vector_bytes(problem(64), odd), 4);
    odd.q.data = reinterpret_cast<void*>(0x10002);
    EXPECT_EQ(append_vector_bytes(problem(64), odd), 2);
}

TEST(AppendPlan, HasAWarpForEachHeadOfEachRow) {
    const Launch launch = plan_append(problem(64), 16, known_device("A100-80"));
    EXPECT_EQ(launch.blocks, (15 * 2 + 21 * 4 + 3) / 4);
    AppendProblem nothing = problem(0);
    nothing.rows_k = nothing.rows_q = 0;
    EXPECT_EQ(plan_append(nothing, 16, known_device("A100-80")).blocks, 0);
}

// Attention behind an append reads the rotated queries, wherever they are put.
TEST(AppendPlan, AttentionReadsRotatedQueriesAsTheyLie) {
    Problem p = one_query(2, 4, 2, 256);
    p.cache = p.appends = true;
    p.pages = 2;
    Operands x;
    x.q = x.k = x.v = x.out = {reinterpret_cast<void*>(0x10000), DType::bf16, 65536, 512, 128, 1};
    x.append = operands();
    EXPECT_EQ(access_of(p, x).vector_bytes, 16);
    EXPECT_TRUE(access_of(p, x).tensor_maps);
    x.append.q_out.data = reinterpret_cast<void*>(0x10004);
    EXPECT_EQ(access_of(p, x).vector_bytes, 4);
    EXPECT_FALSE(access_of(p, x).tensor_maps);
}

TEST(AppendPlan, RefusesAGpuThatIsTooOld) {
    DeviceFacts old = known_device("A100-80");
    old.architecture = 75;
    EXPECT_THROW(plan_append(problem(0), 16, old), Error);
}

}  // namespace
}  // namespace flashtile::gpu
