// split_plan_test.cpp: the plan that splits keys over thread blocks, asked directly: how many splits there are, that
// they fill the GPU, that the workspace holds them all, and which rows share a tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "cuda/plan/candidate.h"
#include "decode_problem.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

Plan planned(const Problem& p, const Access& access = {}) {
    const Question question = question_of(p, access, known_device("H200"));
    const std::optional<Launch> main = split_forward_sm80.main(question);
    Plan plan;
    if (main) split_forward_sm80.complete(question, *main, plan);
    return plan;
}

TEST(SplitPlan, OneLongSequenceFillsTheMachine) {
    const Plan plan = planned(one_query(1, 32, 8, 131072));
    ASSERT_EQ(plan.launches.size(), 2u);
    EXPECT_EQ(plan.launches[0].config.group_rows, 4) << "the heads of a group read K and V once";
    EXPECT_EQ(plan.launches[1].config.kernel, Kernel::combine);
    EXPECT_GE(plan.launches[0].blocks, 132 * 2);
    EXPECT_EQ(plan.split_rule.keys % KeySplits::kUnit, 0);
    EXPECT_GE(plan.most_splits * plan.split_rule.keys, 131072);
    EXPECT_LT((plan.most_splits - 1) * plan.split_rule.keys, 131072);
}

TEST(SplitPlan, ManySequencesAreNotSplit) {
    const Plan plan = planned(one_query(512, 32, 8, 4096));
    ASSERT_EQ(plan.launches.size(), 1u);
    EXPECT_FALSE(plan.launches[0].config.split);
    EXPECT_EQ(plan.workspace.bytes, 0u);
}

// Room for every split of every row: head_dim_v columns of O, and m and l.
TEST(SplitPlan, TheWorkspaceHoldsAllParts) {
    for (const std::int32_t forced : {0, 2, 7, 64})
        for (const std::int64_t queries : {1, 5, 64, 300}) {
            Problem p = one_query(3, 8, 2, 5000);
            p.seqlen_q = queries;
            p.total_q = 3 * queries;
            p.packed = p.cache = true;
            p.pages = 3;
            p.num_splits = forced;
            const Plan plan = planned(p, {.seqused = true});
            ASSERT_FALSE(plan.launches.empty());
            if (!plan.main().config.split) continue;
            const std::int64_t few = std::min<std::int64_t>(queries, 64);
            const PlannedRegion* const o = plan.workspace.find(Region::part_o);
            const PlannedRegion* const ml = plan.workspace.find(Region::part_ml);
            ASSERT_TRUE(o != nullptr && ml != nullptr);
            EXPECT_EQ(o->bytes, static_cast<std::size_t>(3 * 8 * few * plan.most_splits * 128 * 4));
            EXPECT_EQ(ml->bytes, static_cast<std::size_t>(3 * 8 * few * plan.most_splits * 8));
            for (std::int64_t keys = 0; keys <= p.seqlen_k; keys += 61)
                EXPECT_LE(KeySplits::of(keys, plan.split_rule).count, plan.most_splits) << keys;
        }
}

// A row's bits may depend on its own sequence only: one kernel, the rule that looks at nothing else, and tiles of one
// height of blocks of keys, with a cache, with pages or without, alone or among others.
TEST(SplitPlan, BatchInvariantPlansAgreeOnBlocksOfKeys) {
    enum Keys { dense, rows, pages };
    for (const int d : {64, 128, 256}) {
        int Bc = 0;
        for (const std::int64_t queries : {1, 3, 64, 65, 500})
            for (const bool packed : {false, true})
                for (const Keys keys : {dense, rows, pages}) {
                    SCOPED_TRACE(std::to_string(queries) + " queries, d " + std::to_string(d) + ", keys in " +
                                 std::to_string(keys) + (packed ? ", packed" : ""));
                    Problem p = one_query(2, 8, 2, 4096);
                    p.head_dim = p.head_dim_v = d;
                    p.seqlen_q = queries;
                    p.total_q = 2 * queries;
                    p.total_k = 2 * p.seqlen_k;
                    p.packed = packed;
                    p.cache = keys != dense;
                    p.pages = 4096;
                    p.page_size = keys == pages ? 16 : 0;
                    p.batch_invariant = p.exact_max = true;
                    const Plan plan = planned(p);
                    ASSERT_FALSE(plan.launches.empty());
                    const KernelConfig& c = plan.main().config;
                    EXPECT_EQ(c.kernel, Kernel::split_forward_sm80);
                    EXPECT_EQ(c.split, queries <= KeySplits::kMostQueries || packed);
                    EXPECT_EQ(plan.split_rule.keys, 0);
                    EXPECT_FALSE(c.lazy_rescale);
                    if (Bc == 0) Bc = c.Bc;
                    EXPECT_EQ(c.Bc, Bc);
                }
    }
}

TEST(SplitPlan, HeadsWithScoresOfTheirOwnLieApart) {
    Problem p = one_query(1, 8, 2, 4096);
    EXPECT_EQ(planned(p).main().config.group_rows, 4);
    p.alibi = true;
    EXPECT_EQ(planned(p).main().config.group_rows, 1);
}

std::string who_serves(const Problem& p, const char* device = "H200") {
    return plan_forward(p, contiguous_access(p), known_device(device)).name;
}

// What backward says of a problem that it does not take.
std::string refusal_of_backward(const Problem& p) {
    try {
        plan_backward(p, contiguous_access(p), known_device("H200"));
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), FLASHTILE_UNSUPPORTED);
        return error.what();
    }
    return "";
}

struct Option {
    const char* refused;  // by backward; "": it is not
    void (*ask)(Problem&);
    bool hoppers = true;  // Hopper's forward takes it
};

constexpr Option kOptions[] = {
    {"block_table is given", [](Problem& p) { p.cache = true, p.pages = 64, p.page_size = 16; }},
    {"a cache is given", [](Problem& p) { p.cache = true, p.pages = 1; }},
    {"first_k is given", [](Problem& p) { p.first_k = true; }},
    {"seqused_q is given", [](Problem& p) { p.used_q = true; }},
    {"tree_mask is given", [](Problem& p) { p.tree_mask = true; }, false},
    {"tree_mask is given", [](Problem& p) { p.tree_mask = p.positions = true; }, false},
    {"", [](Problem& p) { p.sinks = DType::fp32; }},
    {"", [](Problem& p) { p.attention_chunk = 64; }},
    {"sm_limit is 20", [](Problem& p) { p.sm_limit = 20; }},
    {"head_dim is 576 and head_dim_v 512", [](Problem& p) { p.head_dim = 576, p.head_dim_v = 512; }, false},
};

TEST(SplitPlan, ServesWhatServingAsksFor) {
    for (const char* device : {"H200", "A100-80"}) {
        for (const Option& option : kOptions) {
            Problem p = one_query(1, 32, 8, 4096);
            option.ask(p);
            const bool hoppers = option.hoppers && std::string_view(device) == "H200";
            EXPECT_EQ(who_serves(p, device), hoppers ? "forward_sm90" : "split_forward_sm80") << option.refused;
        }
    }
    EXPECT_EQ(who_serves(one_query(1, 32, 8, 131072), "A100-80"), "split_forward_sm80");
    EXPECT_EQ(who_serves(one_query(1, 32, 8, 131072)), "forward_sm90");
    Problem many = one_query(1, 32, 8, 4096);
    many.seqlen_q = 4096;
    EXPECT_EQ(who_serves(many), "forward_sm90");
    EXPECT_EQ(who_serves(many, "A100-80"), "forward_sm80");
    EXPECT_EQ(who_serves(one_query(512, 32, 8, 4096), "A100-80"), "forward_sm80") << "there are tiles enough";
}

TEST(SplitPlan, BackwardNamesWhatForwardAloneTakes) {
    for (const Option& option : kOptions) {
        Problem p = one_query(1, 32, 8, 4096);
        option.ask(p);
        const std::string refusal = refusal_of_backward(p);
        EXPECT_TRUE(refusal.starts_with(option.refused)) << refusal;
        EXPECT_EQ(refusal.empty(), std::string(option.refused).empty()) << refusal;
    }
}

// Where lengths are not known and there may be more units than thread blocks, a kernel counts those that there are.
TEST(SplitPlan, UnequalSequencesAreDealtOut) {
    const Plan many = planned(one_query(256, 32, 8, 16384), {.seqused = true});
    ASSERT_EQ(many.launches.size(), 3u);
    EXPECT_EQ(many.launches[0].config.kernel, Kernel::deal_splits);
    EXPECT_EQ(many.launches[0].config.Br, many.main().config.Br);
    EXPECT_EQ(many.main().config.kernel, Kernel::split_forward_sm80);
    ASSERT_NE(many.workspace.find(Region::first_unit), nullptr);
    EXPECT_EQ(many.workspace.find(Region::first_unit)->bytes, 257u * 4);
    EXPECT_EQ(planned(one_query(256, 32, 8, 16384)).find(Kernel::deal_splits), nullptr) << "the lengths are known";
    EXPECT_EQ(planned(one_query(1, 32, 8, 1024), {.seqused = true}).find(Kernel::deal_splits), nullptr)
        << "there are as many thread blocks as units";
}

// No more thread blocks than multiprocessors that the call may have: each may be on one of its own.
TEST(SplitPlan, FewMultiprocessorsGetAsManyThreadBlocks) {
    for (const char* device : {"H200", "A100-80"})
        for (const std::int64_t queries : {1, 4096}) {
            Problem p = one_query(4, 32, 8, 8192);
            p.seqlen_q = queries;
            const auto planned = [&] { return plan_forward(p, contiguous_access(p), known_device(device)); };
            const std::int64_t of_all = planned().launches[0].blocks;
            for (const std::int32_t limit : {1, 20, 1000}) {
                p.sm_limit = limit;
                const Plan plan = planned();
                EXPECT_LE(plan.launches[0].blocks, limit) << device;
                if (limit < 1000) {
                    EXPECT_EQ(plan.launches[0].blocks, std::min<std::int64_t>(limit, of_all)) << device;
                }
                // thread blocks look for their tiles
                const KernelConfig& c = plan.main().config;
                EXPECT_TRUE(c.split || c.kernel == Kernel::forward_sm90) << device;
            }
        }
    Problem nothing = one_query(4, 32, 8, 8192);
    nothing.sm_limit = 3;
    nothing.seqlen_q = 0;
    const Plan plan = plan_forward(nothing, contiguous_access(nothing), known_device("A100-80"));
    EXPECT_EQ(plan.main().blocks, 0);
}

// Keys are appended first; q is rotated aside where nobody wants the rotated one.
TEST(SplitPlan, AppendsBeforeItAttends) {
    Problem p = one_query(2, 32, 8, 8192);
    p.cache = p.appends = p.rotates_q_aside = true;
    p.pages = 2;
    p.append = {.dtype = p.dtype,
                .batch = 2,
                .rows_k = 2,
                .seqlen_k = 1,
                .kv_heads = 8,
                .head_dim = 128,
                .head_dim_v = 128,
                .rows_q = 2,
                .seqlen_q = 1,
                .heads = 32};
    const Plan plan = plan_forward(p, {.seqused = true}, known_device("H200"));
    ASSERT_EQ(plan.launches.size(), 3u);
    EXPECT_EQ(plan.launches[0].config.kernel, Kernel::append_kv);
    EXPECT_EQ(plan.launches[0].blocks, 2 * (32 + 8) / 4) << "a head of a row a warp";
    EXPECT_EQ(plan.main().config.kernel, Kernel::forward_sm90);
    EXPECT_EQ(plan.launches[2].config.kernel, Kernel::combine_shares);
    EXPECT_TRUE(plan.launches[0].early && plan.launches[1].early && plan.launches[2].early);
    ASSERT_NE(plan.workspace.find(Region::rotated_q), nullptr);
    EXPECT_EQ(plan.workspace.find(Region::rotated_q)->bytes, 2u * 32 * 128 * 2);
}

}  // namespace
}  // namespace flashtile::gpu
