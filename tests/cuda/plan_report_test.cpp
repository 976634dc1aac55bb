// plan_report_test.cpp: flashtile_plan_report, for GPUs that are not here.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>

namespace flashtile {
namespace {

tensor at(std::uintptr_t address, std::initializer_list<std::int64_t> shape, device where = cuda()) {
    return view(std::bit_cast<void*>(address), bf16, shape, where);
}

nlohmann::json report(const options& o, const char* device_name, std::int64_t d, std::uintptr_t address = 256) {
    const tensor x = at(address, {2, 300, 4, d});
    return nlohmann::json::parse(plan_report(o, x, x, x, device_name));
}

TEST(PlanReport, NamesTheKernelAndWhy) {
    const nlohmann::json hopper = report({.causal = true}, "H200", 128);
    const auto& special = hopper["forward"]["kernels"][0];
    EXPECT_EQ(special["kernel"], "forward_sm90");
    const char* const many = "without a cache's options, and a sequence may have more than 64 queries";
    EXPECT_EQ(hopper["forward"]["passed_over"], (nlohmann::json{{"latent_forward_sm90", "no head dimension over 256"},
                                                                {"split_forward_sm80", many},
                                                                {"forward_sm80", "a more special one serves"}}));
    EXPECT_EQ(hopper["target"], "sm_90a");

    const nlohmann::json ampere = report({}, "A100-80", 128);
    EXPECT_EQ(ampere["forward"]["kernels"][0]["kernel"], "forward_sm80");
    EXPECT_EQ(ampere["forward"]["passed_over"],
              (nlohmann::json{{"latent_forward_sm90", "the GPU is not of compute capability 9.0"},
                              {"split_forward_sm80", many},
                              {"forward_sm90", "the GPU is not of compute capability 9.0"}}));
    EXPECT_EQ(ampere["backward"]["passed_over"],
              (nlohmann::json{{"backward_sm90", "the GPU is not of compute capability 9.0"}}));
    EXPECT_EQ(ampere["backward"]["candidate"], "backward_sm80");
    EXPECT_EQ(ampere["forward"]["workspace"], 0);
    const auto& general = ampere["forward"]["kernels"][0];
    EXPECT_EQ(general["blocks"], (300 + general["Br"].get<int>() - 1) / general["Br"].get<int>() * 4 * 2);
    EXPECT_EQ(ampere["backward"]["kernels"].size(), 3u);
    EXPECT_FALSE(ampere["forward"]["kernels"][0].contains("registers"));
}

TEST(PlanReport, AnAddressCountsByItsAlignment) {
    EXPECT_EQ(report({}, "H200", 128, 258)["forward"]["kernels"][0]["vector_bytes"], 2);
    EXPECT_EQ(report({}, "H200", 128, 256)["forward"]["kernels"][0]["vector_bytes"], 16);
}

TEST(PlanReport, ABiasBringsItsGradient) {
    const options o = {.bias = at(256, {300, 300})};
    EXPECT_EQ(report(o, "L4", 64)["backward"]["kernels"][3]["kernel"], "backward_bias_sm80");
}

TEST(PlanReport, WhatHasNoKernelSaysSo) {
    const nlohmann::json wide = report({}, "H200", 512);
    EXPECT_TRUE(wide["forward"].contains("kernels"));
    EXPECT_NE(wide["backward"]["why_not"].get<std::string>().find("head_dim is 512"), std::string::npos);
}

// The kernels of a cache, and that backward has none, not what else it would not take.
TEST(PlanReport, ACacheHasAForwardPass) {
    const tensor q = at(256, {64, 1, 8, 512}), pages = at(256, {4096, 64, 2, 512});
    options o;
    o.block_table = view(std::bit_cast<void*>(std::uintptr_t{256}), dtype::int32, {64, 512}, cuda());
    o.seqused_k = view(std::bit_cast<void*>(std::uintptr_t{256}), dtype::int32, {64}, cuda());
    const auto plan = nlohmann::json::parse(plan_report(o, q, pages, at(512, {4096, 64, 2, 512}), "H200"));
    const auto latent = nlohmann::json::parse(plan_report(o, q, pages, pages, "H200"));
    EXPECT_EQ(latent["forward"]["kernels"][0]["kernel"], "latent_forward_sm90") << "v lies in k";
    const auto& kernels = plan["forward"]["kernels"];
    ASSERT_EQ(kernels.size(), 3u) << plan;
    EXPECT_EQ(kernels[0]["kernel"], "deal_splits");
    EXPECT_EQ(kernels[1]["kernel"], "split_forward_sm80");
    EXPECT_EQ(kernels[2]["kernel"], "combine");
    EXPECT_EQ(plan["backward"], (nlohmann::json{{"why_not", "block_table is given, which only forward takes"}}));
}

TEST(PlanReport, WithoutACandidateItSaysWhatSpeaksAgainstEach) {
    const tensor x = view(std::bit_cast<void*>(std::uintptr_t{256}), fp32, {2, 300, 4, 192}, cuda());
    const auto backward = nlohmann::json::parse(plan_report({}, x, x, x, "RTX 4090"))["backward"];
    EXPECT_NE(backward["why_not"].get<std::string>().find("101376 bytes of shared memory"), std::string::npos);
    EXPECT_EQ(backward["passed_over"],
              (nlohmann::json{{"backward_sm90", "the GPU is not of compute capability 9.0"},
                              {"backward_sm80", "none of its tiles fits the GPU's shared memory"}}));
}

TEST(PlanReport, RefusesWhatCannotBe) {
    EXPECT_THROW(report({}, "V100", 64), error);
    const tensor x = at(256, {2, 300, 4, 64}, cpu);
    try {
        plan_report({}, x, x, x, "H200");
        FAIL();
    } catch (const error& e) {
        EXPECT_STREQ(e.what(), "device_name is 'H200', allowed for tensors on the CPU is NULL");
    }
}

}  // namespace
}  // namespace flashtile
