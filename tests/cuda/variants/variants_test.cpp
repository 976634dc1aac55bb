// variants_test.cpp: the list of variants is complete: every two choices that the planner takes together are in it.
#include "cuda/variants/variants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace flashtile::variants {
namespace {

TEST(Pairwise, HasEveryPairInFewRows) {
    const std::vector<int> choices{3, 4, 2, 2, 2, 5};
    const auto list = pairwise(choices, [](const Row&) { return true; });
    for (const Pair& pair : all_pairs(choices))
        EXPECT_TRUE(std::ranges::any_of(list, [&](const Row& row) { return pair.in(row); }))
            << pair.factor_a << '=' << pair.choice_a << ' ' << pair.factor_b << '=' << pair.choice_b;
    EXPECT_LE(list.size(), 2U * 4 * 5);  // twice the least that there can be
}

TEST(Pairwise, KeepsToWhatIsAllowed) {
    const auto list = pairwise({3, 3}, [](const Row& row) { return row[0] != row[1]; });
    EXPECT_EQ(list.size(), 6U);
    for (const Row& row : list) EXPECT_NE(row[0], row[1]);
}

// What is not covered, no GPU could compute: heads of 512 where there is too little shared memory.
TEST(Variants, HaveEveryPair) {
    const auto list = rows();
    std::set<std::string> uncovered;
    for (const Pair& pair : all_pairs(counts()))
        if (std::ranges::none_of(list, [&](const Row& row) { return pair.in(row); })) {
            const auto name = [](std::size_t factor, int choice) {
                return std::string(factors()[factor].name) + "=" +
                       factors()[factor].choices[static_cast<std::size_t>(choice)];
            };
            uncovered.insert(name(pair.factor_a, pair.choice_a) + ", " + name(pair.factor_b, pair.choice_b));
        }
    for (const std::string& pair : uncovered)
        EXPECT_NE(pair.find("head dimensions=512"), std::string::npos) << pair << " is not covered";
    EXPECT_LE(uncovered.size(), 6U) << *uncovered.begin();
}

TEST(Variants, HaveEveryKernel) {
    const auto list = all_variants();
    for (const Kernel kernel : {Kernel::forward_sm80,
                                Kernel::split_forward_sm80,
                                Kernel::deal_splits,
                                Kernel::combine,
                                Kernel::backward_prepare,
                                Kernel::backward_sm80,
                                Kernel::backward_finish,
                                Kernel::backward_bias_sm80,
                                Kernel::backward_sinks,
                                Kernel::forward_sm90,
                                Kernel::backward_sm90,
                                Kernel::backward_wide_sm90,
                                Kernel::backward_pair_sm90,
                                Kernel::dropout_mask,
                                Kernel::merge,
                                Kernel::append_kv,
                                Kernel::latent_forward_sm90,
                                Kernel::combine_shares,
                                Kernel::mask_blocks,
                                Kernel::block_kinds,
                                Kernel::backward_tensors_sm80,
                                Kernel::clear_tensors,
                                Kernel::quantize,
                                Kernel::dequantize})
        EXPECT_TRUE(std::ranges::any_of(list, [&](const Variant& v) { return v.config.kernel == kernel; }))
            << static_cast<int>(kernel);
}

// The rows' variants have the tables' tiles; what tune may choose beside them must be there too.
TEST(Variants, HaveTheTilesThatTuneMayChoose) {
    const auto list = all_variants();
    std::set<std::pair<int, int>> tiles;
    for (const Variant& v : list)
        if (v.architecture == 90 && v.config.kernel == Kernel::forward_sm90 && v.config.head_dim == 128 &&
            !v.config.shares && !v.config.block_lists && v.config.element != Element::e4m3 && !v.config.converts_kv)
            tiles.insert({v.config.Br, v.config.Bc});
    EXPECT_EQ(tiles, (std::set<std::pair<int, int>>{{128, 64}, {128, 80}, {128, 128}, {192, 64}, {192, 80}}));
}

}  // namespace
}  // namespace flashtile::variants
