// head_dims_test.cpp: every head dimension that a GPU must take, with another one for v.
#include "conformance/judge.h"
#include "conformance/share.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;

class HeadDims : public OnGpu {
protected:
    static conformance::Verdict judge(std::int64_t d, std::int64_t dv, dtype type) {
        Case c;
        c.type = type;
        c.seqlen_q = 35;
        c.seqlen_k = 71;
        c.heads = 4;
        c.kv_heads = 2;
        c.head_dim = d;
        c.head_dim_v = dv;
        c.causal = d % 2 == 0;
        c.data_seed = static_cast<std::uint64_t>(d);
        SCOPED_TRACE(to_string(c));
        const conformance::Verdict verdict = conformance::judge(c, conformance::cuda_target());
        EXPECT_TRUE(verdict.ok()) << verdict.to_string();
        return verdict;
    }

    static constexpr dtype kTypes[] = {fp16, bf16, fp32};
};

TEST_F(HeadDims, Every) {
    const conformance::Share share = conformance::share_of_list();
    for (std::int64_t d = 1; d <= 256; ++d)
        if (share.has(static_cast<std::size_t>(d))) {
            EXPECT_EQ(judge(d, d, kTypes[d % 3]).refused, "");
        }
}

TEST_F(HeadDims, EveryWithAnotherForV) {
    const conformance::Share share = conformance::share_of_list();
    for (std::int64_t d = 1; d <= 256; d += 3)
        if (share.has(static_cast<std::size_t>(d / 3))) {
            EXPECT_EQ(judge(d, 1 + (d * 97 + 13) % 256, kTypes[d / 3 % 3]).refused, "");
        }
}

// Where the GPU has the shared memory for it, forward goes to 512.
TEST_F(HeadDims, WideForward) {
    constexpr int kEnough = 227 << 10;
    const conformance::Share share = conformance::share_of_list();
    std::size_t n = 0;
    for (const std::int64_t d : {257, 320, 384, 511, 512})
        for (const dtype type : kTypes) {
            if (!share.has(n++)) continue;
            const conformance::Verdict verdict = judge(d, d, type);
            if (gpu::device(0).facts().shared_memory_per_block >= kEnough) {
                EXPECT_FALSE(verdict.comparisons.empty()) << verdict.refused;
            }
        }
}

}  // namespace
}  // namespace flashtile::device_tests
