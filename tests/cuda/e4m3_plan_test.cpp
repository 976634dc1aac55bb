// e4m3_plan_test.cpp: which kernels e4m3 tensors get, and how the launches of quantising follow from where scales come
// from.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/plan/append_kv.h"
#include "cuda/plan/quantize.h"
#include "decode_problem.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

Problem all_e4m3(std::int64_t d, ScaleKind scale = ScaleKind::head) {
    Problem p = one_query(4, 16, 4, 8192);
    p.seqlen_q = 8192;
    p.head_dim = p.head_dim_v = d;
    p.dtype = DType::fp8_e4m3;
    p.out_dtype = DType::bf16;
    p.q_scale = p.k_scale = p.v_scale = scale;
    p.scale_block = scale == ScaleKind::block ? 64 : 0;
    return p;
}

Problem keys_alone(DType dtype, std::int64_t queries) {
    Problem p = one_query(16, 32, 8, 8192);
    p.dtype = dtype;
    p.kv_dtype = DType::fp8_e4m3;
    p.k_scale = p.v_scale = ScaleKind::tensor;
    p.seqlen_q = queries;
    p.cache = true;
    p.pages = 16;
    return p;
}

Plan planned(const Problem& p, const char* device = "H200") {
    return plan_forward(p, contiguous_access(p), known_device(device));
}

TEST(E4m3Plan, HopperMultipliesE4m3) {
    for (const std::int64_t d : {64, 96, 128, 192, 256})
        for (const ScaleKind scale : {ScaleKind::none, ScaleKind::tensor, ScaleKind::head, ScaleKind::block}) {
            const KernelConfig c = planned(all_e4m3(d, scale)).main().config;
            EXPECT_EQ(c.kernel, Kernel::forward_sm90);
            EXPECT_EQ(c.element, Element::e4m3);
            EXPECT_EQ(c.out_element, Element::bf16);
            EXPECT_EQ(c.scale_blocks, scale == ScaleKind::block);
            EXPECT_EQ(c.Bc % (scale == ScaleKind::block ? 64 : 32), 0) << "groups of keys share scales";
            EXPECT_FALSE(c.converts_q || c.converts_kv);
        }
}

TEST(E4m3Plan, WhatHopperLacksTheGeneralKernelConverts) {
    const auto general = [](const Problem& p, const char* device) {
        const Plan plan = planned(p, device);
        EXPECT_STREQ(plan.name, "split_forward_sm80");
        EXPECT_EQ(plan.main().config.element, Element::bf16) << "which holds e4m3 exactly";
        EXPECT_TRUE(plan.main().config.converts_q && plan.main().config.converts_kv);
    };
    for (const char* device : {"A100-80", "RTX 4090", "B200", "RTX 5090"}) general(all_e4m3(128), device);
    Problem softcap = all_e4m3(128);
    softcap.softcap = 30.0f;
    general(softcap, "H200");
    Problem dropout = all_e4m3(128);
    dropout.dropout_threshold = 1;
    general(dropout, "H200");
    general(all_e4m3(40), "H200");  // no multiple of 16 bytes
    general(all_e4m3(512), "A100-80");
}

TEST(E4m3Plan, KeysAloneKeepTheQueriesElement) {
    for (const DType dtype : {DType::fp16, DType::bf16})
        for (const std::int64_t queries : {1, 64, 512}) {
            const Plan plan = planned(keys_alone(dtype, queries));
            EXPECT_STREQ(plan.name, "forward_sm90");
            EXPECT_EQ(plan.main().config.element, dtype == DType::fp16 ? Element::fp16 : Element::bf16);
            EXPECT_TRUE(plan.main().config.converts_kv && !plan.main().config.converts_q);
            EXPECT_EQ(plan.main().config.shares, queries <= 64);
            EXPECT_STREQ(planned(keys_alone(dtype, queries), "A100-80").name, "split_forward_sm80");
        }
    Problem blocks = keys_alone(DType::bf16, 1);
    blocks.k_scale = blocks.v_scale = ScaleKind::block;
    blocks.scale_block = 64;
    const KernelConfig c = planned(blocks).main().config;
    EXPECT_EQ(c.kernel, Kernel::forward_sm90);
    EXPECT_TRUE(c.scale_blocks);
    EXPECT_EQ(c.Bc % 64, 0) << "groups of keys share scales";
    blocks.page_size = 64;
    EXPECT_STREQ(planned(blocks).name, "split_forward_sm80") << "whose blocks start anew with each page";
}

TEST(E4m3Plan, WideHeadsHaveOneConsumerOfFewQueries) {
    for (const std::int64_t d : {192, 256}) {
        Problem p = keys_alone(DType::bf16, 16);  // of four heads
        p.head_dim = p.head_dim_v = d;
        const Launch launch = planned(p).main();
        EXPECT_EQ(launch.config.kernel, Kernel::forward_sm90);
        EXPECT_EQ(launch.config.Br, 64);
        EXPECT_TRUE(launch.config.shares);
        p.seqlen_q = 17;
        EXPECT_STREQ(planned(p).name, "split_forward_sm80");
    }
}

// What folds parts knows nothing of the keys' element.
TEST(E4m3Plan, TheCombineIsThatOfOut) {
    const Plan plan = planned(keys_alone(DType::bf16, 1));
    ASSERT_EQ(plan.launches.size(), 2u);
    Problem sixteen = keys_alone(DType::bf16, 1);
    sixteen.kv_dtype = DType::unset;
    EXPECT_EQ(plan.launches[1].config.element, planned(sixteen).launches[1].config.element);
    EXPECT_FALSE(plan.launches[1].config.converts_kv || plan.launches[1].config.scale_blocks);
}

TEST(E4m3Plan, OutInFp32) {
    Problem p = one_query(4, 16, 4, 8192);
    p.seqlen_q = 8192;
    p.out_dtype = DType::fp32;
    for (const char* device : {"H200", "A100-80"}) {
        const KernelConfig c = planned(p, device).main().config;
        EXPECT_EQ(output_element(c), Element::fp32);
        EXPECT_EQ(output_parts(c), 0) << "there is no room for it in shared memory";
    }
    EXPECT_STREQ(planned(p, "A100-80").name, "split_forward_sm80");
}

TEST(E4m3Plan, SharedMemoryHoldsWhatKernelsUse) {
    for (const std::int64_t d : {64, 128, 192, 256}) {
        const Launch launch = planned(all_e4m3(d)).main();
        const KernelConfig& c = launch.config;
        EXPECT_EQ(raw_value_bytes(c) % 1024, 0);
        EXPECT_EQ(transposed_bytes(c) % 1024, 0) << "the swizzle repeats after 1024 bytes";
        EXPECT_LE(launch.shared_memory, known_device("H200").shared_memory_per_block);
    }
}

TEST(E4m3Plan, QuantisingReadsTwiceWhereAScaleIsForMoreThanABlock) {
    QuantizeProblem p;
    p.dtype = DType::bf16;
    p.batch = 2;
    p.seqlen = 1000;
    p.heads = p.scale_heads = 3;
    p.head_dim = 128;
    const auto steps = [&] {
        const QuantizePlan plan = plan_quantize(p, 16, 16, known_device("A100-80"));
        return std::vector<QuantizeStep>(plan.steps.begin(), plan.steps.end());
    };
    using enum QuantizeStep;
    p.scale = ScaleKind::block;
    p.scale_block = 128;
    EXPECT_EQ(steps(), std::vector{quantize});
    EXPECT_EQ(plan_quantize(p, 16, 8, known_device("A100-80")).launches[0].blocks, 2 * 3 * 8);
    p.scale = ScaleKind::head;
    p.scale_block = 0;
    EXPECT_EQ(steps(), (std::vector{clear_scales, find_largest, finish_scales, quantize}));
    p.scale_given = true;
    EXPECT_EQ(steps(), std::vector{quantize});
}

// Rows of two heads share a lane's angles, and units are dealt to fewer thread blocks where there are many.
TEST(E4m3Plan, QuantisingRotatedRowsTakesTwoHeadsAtATime) {
    QuantizeProblem p;
    p.dtype = DType::bf16;
    p.batch = 1;
    p.seqlen = 16384;
    p.heads = p.scale_heads = 63;
    p.head_dim = 128;
    p.scale = ScaleKind::block;
    p.scale_block = 128;
    const auto planned = [&] { return plan_quantize(p, 16, 128, known_device("H100")); };
    EXPECT_EQ(quantize_heads(planned().launches[0].config), 1);
    EXPECT_EQ(planned().shares, 4);
    EXPECT_EQ(planned().launches[0].blocks, 128 * 63 / 4);
    p.pairs = 64;
    EXPECT_EQ(quantize_heads(planned().launches[0].config), 2);
    EXPECT_EQ(planned().shares, 8);
    EXPECT_EQ(planned().launches[0].blocks, 128 * 32 / 8);
    p.seqlen = 64;
    EXPECT_EQ(planned().shares, 1);
}

// Every lane of a thread block has a part of some row, for every width.
TEST(E4m3Plan, QuantisingHasAWarpForEveryRow) {
    for (std::int64_t d = 1; d <= 1024; ++d)
        for (const std::int64_t block : {64, 128}) {
            QuantizeProblem p;
            p.dtype = DType::fp32;
            p.batch = p.heads = p.scale_heads = 1;
            p.seqlen = 64;
            p.head_dim = d;
            p.scale = ScaleKind::block;
            p.scale_block = block;
            const int bytes = quantize_vector_bytes(p, {});
            const KernelConfig c = plan_quantize(p, bytes, 1, known_device("A100-80")).launches[0].config;
            ASSERT_GE(c.Br * quantize_row_lanes(c), c.warps * 32) << d;
            ASSERT_GE(quantize_row_lanes(c) * quantize_pieces(c) * quantize_piece(c), d);
        }
}

TEST(E4m3Plan, AppendingToE4m3IsAKernelOfItsOwn) {
    AppendProblem p;
    p.dtype = DType::bf16;
    EXPECT_FALSE(plan_append(p, 16, known_device("A100-80")).config.converts_kv);
    p.cache_dtype = DType::fp8_e4m3;
    EXPECT_TRUE(plan_append(p, 16, known_device("A100-80")).config.converts_kv);
}

}  // namespace
}  // namespace flashtile::gpu
