// tuned_blocks_test.cpp: rows of a CPU's task that were chosen (`flashtile tune --device=cpu`): they are what then
// runs, for such problems alone, and no bit of a result depends on them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "unit/call.h"

namespace flashtile::unit {
namespace {

using conformance::Case;

Case problem(std::int64_t seqlen = 300) {
    Case c;
    c.heads = c.kv_heads = 2;
    c.seqlen_q = c.seqlen_k = seqlen;
    c.head_dim = c.head_dim_v = 32;
    c.causal = true;
    return c;
}

struct TunedBlocks : testing::Test {
    void SetUp() override { forget_choices(false); }
    void TearDown() override { forget_choices(false); }
};

nlohmann::json plan_of(const Case& c, int threads = 2) {
    Call call(c);
    call.options.isa = FLASHTILE_ISA_PORTABLE;
    call.options.threads = threads;
    const char* json = nullptr;
    detail::check(flashtile_plan_report(&call.options, &call.inputs, nullptr, 0, &json));
    return nlohmann::json::parse(json);
}

const nlohmann::json& main_kernel(const nlohmann::json& plan, const char* pass) {
    return plan[pass]["kernels"][std::string(pass) == "forward" ? 0 : 1];
}

std::vector<double> results_of(const Case& c) {
    Call call(c);
    call.options.isa = FLASHTILE_ISA_PORTABLE;
    call.options.threads = 2;
    detail::check(call.forward());
    detail::check(call.backward());
    std::vector<double> all;
    for (const auto* tensor : {&call.data.out, &call.data.dq, &call.data.dk, &call.data.dv}) {
        const std::vector<double> values = tensor->values();
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

TEST_F(TunedBlocks, EveryAlternativeIsWhatRunsAndChangesNoBit) {
    const std::vector<double> own = results_of(problem());
    for (const char* pass : {"forward", "backward"}) {
        const nlohmann::json plan = plan_of(problem());
        const nlohmann::json list = plan[pass]["alternatives"];
        ASSERT_GE(list.size(), 3U) << pass;
        EXPECT_EQ(main_kernel(plan, pass)["measured"], false);
        std::string tile = std::to_string(main_kernel(plan, pass)["task_rows"].get<int>());
        EXPECT_TRUE(list[0]["tile"].get<std::string>().starts_with(tile + " ")) << list[0];
        for (const nlohmann::json& each : list) {
            use_choice(each["choice"], false);
            const nlohmann::json kernel = main_kernel(plan_of(problem()), pass);
            EXPECT_EQ(kernel["measured"], true);
            tile = std::to_string(kernel["task_rows"].get<int>());
            EXPECT_TRUE(each["tile"].get<std::string>().starts_with(tile + " ")) << each;
            EXPECT_TRUE(results_of(problem()) == own) << each;
        }
        forget_choices(false);
        EXPECT_EQ(plan_of(problem()), plan);
    }
}

TEST_F(TunedBlocks, ServeSuchProblemsAlone) {
    use_choice(plan_of(problem())["forward"]["alternatives"][1]["choice"], false);
    const auto measured = [](const Case& c, int threads = 2) -> bool {
        return main_kernel(plan_of(c, threads), "forward")["measured"];
    };
    EXPECT_TRUE(measured(problem()));
    EXPECT_TRUE(measured(problem(260)));   // about 256, too
    EXPECT_FALSE(measured(problem(500)));  // about 512
    EXPECT_FALSE(measured(problem(), 3));
    EXPECT_FALSE(main_kernel(plan_of(problem()), "backward")["measured"]);
    Case other = problem();
    other.causal = false;
    EXPECT_FALSE(measured(other));
    other = problem();
    other.head_dim = 16;
    EXPECT_FALSE(measured(other));
    other = problem();
    other.type = bf16;
    EXPECT_FALSE(measured(other));
    other = problem();
    other.heads = other.kv_heads = 4;
    EXPECT_FALSE(measured(other));
}

TEST_F(TunedBlocks, RowsThatNoTaskMayHaveAreNotUsed) {
    const std::string choice = plan_of(problem())["forward"]["alternatives"][1]["choice"];
    for (const char* rows : {"rows=0", "rows=7", "rows=24", "rows=1073741824"}) {
        use_choice(std::regex_replace(choice, std::regex("rows=[0-9]+"), rows), false);
        EXPECT_FALSE(main_kernel(plan_of(problem()), "forward")["measured"]) << rows;
    }
    use_choice(std::regex_replace(choice, std::regex("version=[^ ]+"), "version=0.0.1"), false);
    use_choice(std::regex_replace(choice, std::regex("cpu=[^ ]+"), "cpu=another"), false);
    EXPECT_EQ(main_kernel(plan_of(problem()), "forward")["measured"], false);
}

TEST_F(TunedBlocks, WhatIsNoChoiceIsRefused) {
    const std::string choice = plan_of(problem())["forward"]["alternatives"][1]["choice"];
    const auto replaced = [&](const char* from, const char* to) {
        return std::regex_replace(choice, std::regex(from), to);
    };
    for (const std::string& text :
         {std::string("cpu="), replaced("rows=", "rows=0"), replaced("rows=", "rows=-"), replaced("band=1", "band=2"),
          replaced("pass=forward", "pass=sideways"), replaced("isa=[a-z]+", "isa=avx3"), replaced(" threads=2", ""),
          choice + " ", choice + " more=1", replaced("dtype=fp32", "dtype=fp64")})
        EXPECT_THROW(use_choice(text, false), error) << text;
    EXPECT_NO_THROW(use_choice(choice, false));
}

// Few queries are decoded, in tasks of keys that results depend on.
TEST_F(TunedBlocks, FewQueriesHaveNoneInForward) {
    Case c = problem();
    c.seqlen_q = 1;
    c.causal = false;
    EXPECT_TRUE(plan_of(c)["forward"]["alternatives"].empty());
    EXPECT_FALSE(plan_of(c)["backward"]["alternatives"].empty());
}

}  // namespace
}  // namespace flashtile::unit
