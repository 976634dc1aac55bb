// share_plan_test.cpp: the plan by which Hopper's thread blocks get equal shares of the keys: when it serves, that it
// fills the GPU, that the workspace holds all parts, and how pages are loaded.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/plan/candidate.h"
#include "decode_problem.h"
#include "shared/kernel_layout.h"
#include "shared/key_splits.h"

namespace flashtile::gpu {
namespace {

Plan planned(const Problem& p) {
    return plan_forward(p, {.seqused = true}, known_device("H200"));
}

TEST(SharePlan, FillsTheMachineAndFoldsTheParts) {
    for (const auto& [batch, keys] : {std::pair(16, 8192), {1, 131072}, {256, 16384}}) {
        const Plan plan = planned(one_query(batch, 32, 8, keys));
        ASSERT_EQ(plan.launches.size(), 2u);
        EXPECT_TRUE(plan.main().config.shares);
        EXPECT_EQ(plan.main().config.group_rows, 4) << "the heads of a group read K and V once";
        EXPECT_EQ(plan.main().blocks, 132 * plan.main().config.blocks_per_sm);
        EXPECT_EQ(plan.share_blocks, static_cast<unsigned>(plan.main().blocks));
        EXPECT_EQ(plan.launches[1].config.kernel, Kernel::combine_shares);
        const int groups = combine_groups(plan.launches[1].config);
        EXPECT_EQ(plan.launches[1].blocks * groups, batch * 32 * plan.fold_groups);
        EXPECT_TRUE(plan.launches[0].early && plan.launches[1].early);
    }
}

TEST(SharePlan, FewKeysTakeFewThreadBlocksAndNoCombine) {
    const Plan few = planned(one_query(1, 32, 8, 1024));
    EXPECT_EQ(few.main().blocks, 8 * 1024 / few.main().config.Bc);
    const Plan one = planned(one_query(1, 32, 8, 64));
    EXPECT_EQ(one.launches.size(), 1u);
}

TEST(SharePlan, SharesAreEqual) {
    for (unsigned total = 0; total < 2000; ++total)
        for (const unsigned blocks : {1u, 7u, 264u})
            for (const bool rounded : {false, true}) {
                const KeyShares shares = KeyShares::of(total, blocks, rounded);
                const unsigned longest = std::max(1u, (total + blocks - 1) / blocks);
                const unsigned shortest = rounded ? longest : std::max(1u, total / blocks);
                EXPECT_GE(shares.first_of(blocks), total);
                for (unsigned n = 0; n < blocks; ++n) {
                    const unsigned first = shares.first_of(n), end = std::min(shares.first_of(n + 1), total);
                    if (first >= end) continue;
                    EXPECT_LE(end - first, longest);
                    EXPECT_TRUE(end == total || end - first >= shortest) << total << " on " << blocks;
                    EXPECT_EQ(shares.owner_of(first), n);
                    EXPECT_EQ(shares.owner_of(end - 1), n);
                }
            }
}

// A thread block has at most two pieces that are not whole tiles, each of so many rows as a tile has at most.
TEST(SharePlan, TheWorkspaceHoldsAllParts) {
    for (const std::int64_t queries : {1, 5, 64}) {
        Problem p = one_query(3, 12, 2, 5000);
        p.seqlen_q = queries;
        const Plan plan = planned(p);
        EXPECT_EQ(plan.main().config.group_rows, 8) << "six heads, rounded up";
        const std::int64_t rows = std::min<std::int64_t>(plan.main().config.Br, queries * 8);
        const PlannedRegion* const o = plan.workspace.find(Region::part_o);
        const PlannedRegion* const ml = plan.workspace.find(Region::part_ml);
        const PlannedRegion* const first = plan.workspace.find(Region::first_unit);
        ASSERT_TRUE(o != nullptr && ml != nullptr && first != nullptr);
        EXPECT_EQ(o->bytes, static_cast<std::size_t>(2 * plan.main().blocks * rows * 128 * 4));
        EXPECT_EQ(ml->bytes, static_cast<std::size_t>(2 * plan.main().blocks * rows * 8));
        EXPECT_EQ(first->bytes, (3u + 1) * 4);
        EXPECT_EQ(plan.part_rows, rows);
    }
}

TEST(SharePlan, PagesAreLoadedInTheirCommonRows) {
    for (const auto& [page, box] : {std::pair(16, 16), {48, 16}, {32, 32}, {64, 64}, {80, 16}, {256, 64}}) {
        Problem p = one_query(4, 32, 8, 64 * page);
        p.cache = true;
        p.pages = 256;
        p.page_size = page;
        const Plan plan = planned(p);
        ASSERT_STREQ(plan.name, "forward_sm90") << page;
        EXPECT_EQ(plan.page_box, box) << page;
        EXPECT_EQ(plan.main().maps[1].box_rows, box) << page;
    }
}

// A part for every tile of every sequence, with its own keys and with its prefix, one for every tile of the groups, and
// one more of each for every thread block that goes on with another's tile.
TEST(SharePlan, WithPrefixesEveryTileIsAPart) {
    for (const bool packed : {false, true}) {
        Problem p = one_query(20, 32, 8, 4096);
        p.cache = true;
        p.pages = 1024;
        p.page_size = 16;
        p.prefix_groups = 3;
        p.seqlen_q = 9;
        p.packed = packed;
        p.total_q = 131;
        const Plan plan = planned(p);
        ASSERT_STREQ(plan.name, "forward_sm90");
        const KernelConfig& c = plan.main().config;
        EXPECT_TRUE(c.prefixes);
        EXPECT_TRUE(plan.find(Kernel::combine_shares)->config.prefixes);
        EXPECT_EQ(plan.part_rows, 9 * 4);
        const std::int64_t blocks = plan.main().blocks, of_groups = 8 * ((packed ? 131 : 180) * 4 / c.Br + 3);
        const std::int64_t rows = (2 * 20 * 8 + blocks) * plan.part_rows + (of_groups + blocks) * c.Br;
        EXPECT_EQ(plan.workspace.find(Region::part_o)->bytes, static_cast<std::size_t>(rows * 128 * 4));
        EXPECT_EQ(plan.workspace.find(Region::part_ml)->bytes, static_cast<std::size_t>(rows * 8));
        EXPECT_EQ(plan.workspace.find(Region::first_unit)->bytes, (2u * 20 + 3 + 1) * 4);
    }
}

TEST(SharePlan, ABundleHasWhatReadsAPrefixOnce) {
    Problem p = one_query(1, 32, 8, 4096);
    p.cache = true;
    p.pages = 1024;
    p.page_size = 16;
    const std::vector<KernelConfig> all = configs_for(p, {.seqused = true}, known_device("H200"), Passes::forward);
    for (const Kernel kernel : {Kernel::forward_sm90, Kernel::combine_shares})
        EXPECT_TRUE(std::ranges::any_of(all, [&](const KernelConfig& c) { return c.kernel == kernel && c.prefixes; }));
}

struct Exception {
    const char* name;
    void (*apply)(Problem&);
};

TEST(SharePlan, TheGeneralKernelHasTheRest) {
    constexpr Exception kExceptions[] = {
        {"small pages", [](Problem& p) { p.page_size = 8; }},
        {"a tree", [](Problem& p) { p.tree_mask = true; }},
        {"num_splits", [](Problem& p) { p.num_splits = 3; }},
        {"batch_invariant", [](Problem& p) { p.batch_invariant = true; }},
        {"a bias", [](Problem& p) { p.bias = p.dtype; }},
        {"a prefix and a window", [](Problem& p) { p.prefix_groups = 1, p.window_left = 100, p.window_right = 0; }},
        {"a prefix and chunks", [](Problem& p) { p.prefix_groups = 1, p.attention_chunk = 512; }},
        {"a prefix and left padding", [](Problem& p) { p.prefix_groups = 1, p.first_k = true; }},
        {"a prefix and unused queries", [](Problem& p) { p.prefix_groups = 1, p.used_q = true; }},
        {"a prefix and many queries", [](Problem& p) { p.prefix_groups = 1, p.seqlen_q = 65; }},
        {"a prefix of wide heads", [](Problem& p) { p.prefix_groups = 1, p.head_dim = p.head_dim_v = 256; }},
        {"sequences of one query beside one of many",
         [](Problem& p) { p.packed = true, p.batch = 16, p.seqlen_q = 512, p.total_q = 512 + 15; }},
    };
    Problem cache = one_query(4, 32, 8, 4096);
    cache.cache = true;
    cache.pages = 1024;
    cache.page_size = 16;
    EXPECT_STREQ(planned(cache).name, "forward_sm90");
    for (const Exception& exception : kExceptions) {
        Problem p = cache;
        exception.apply(p);
        EXPECT_STREQ(planned(p).name, "split_forward_sm80") << exception.name;
    }
    cache.prefix_groups = 1;
    EXPECT_STREQ(planned(cache).name, "forward_sm90");
    const Access uneven = {.even_queries = false, .seqused = true};
    EXPECT_STREQ(plan_forward(cache, uneven, known_device("H200")).name, "split_forward_sm80");
}

// Queries of a chunk fill tiles by themselves.
TEST(SharePlan, ChunkedPrefillSharesNothingOut) {
    Problem p = one_query(8, 32, 8, 8704);
    p.cache = p.packed = true;
    p.pages = 4096;
    p.page_size = 64;
    p.seqlen_q = 512;
    p.total_q = 8 * 512;
    const Plan plan = planned(p);
    EXPECT_STREQ(plan.name, "forward_sm90");
    EXPECT_FALSE(plan.main().config.shares);
    EXPECT_EQ(plan.launches.size(), 1u);
}

}  // namespace
}  // namespace flashtile::gpu
