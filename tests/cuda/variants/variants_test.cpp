// variants_test.cpp: the list of variants is complete: every two choices that the planner takes together are in it.
#include "cuda/variants/variants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "conformance/random_source.h"

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

std::string name_of(const Pair& pair) {
    const auto name = [](std::size_t factor, int choice) {
        return std::string(factors()[factor].name) + "=" + factors()[factor].choices[static_cast<std::size_t>(choice)];
    };
    return name(pair.factor_a, pair.choice_a) + ", " + name(pair.factor_b, pair.choice_b);
}

// What is not covered, no GPU could compute: heads of 512 where there is too little shared memory.
TEST(Variants, HaveEveryPair) {
    const auto list = rows();
    std::set<std::string> uncovered;
    for (const Pair& pair : all_pairs(counts()))
        if (std::ranges::none_of(list, [&](const Row& row) { return pair.in(row); })) {
            uncovered.insert(name_of(pair));
        }
    for (const std::string& pair : uncovered)
        EXPECT_NE(pair.find("head dimensions=512"), std::string::npos) << pair << " is not covered";
    EXPECT_LE(uncovered.size(), 6U) << *uncovered.begin();
}

// Whatever problem gets one of Hopper's kernels, every two of its choices are in that kernel's rows.
void expect_every_pair(const std::vector<Row>& list, const std::function<bool(const Variant&)>& is_one) {
    conformance::RandomSource random(7);
    int found = 0;
    std::set<std::string> uncovered;
    for (int n = 0; n < 3000; ++n) {
        Row drawn;
        for (const int count : counts()) drawn.push_back(static_cast<int>(random.integer(0, count - 1)));
        drawn[0] = list.front()[0];  // the GPU
        // Most problems that are drawn have some option too many.
        for (std::size_t factor = 5; factor < drawn.size(); ++factor)
            if (random.integer(0, 2) != 0) drawn[factor] = 0;
        if (!planned(drawn) || std::ranges::none_of(variants_of(drawn), is_one)) continue;
        ++found;
        for (const Pair& pair : all_pairs(counts()))
            if (pair.in(drawn) && std::ranges::none_of(list, [&](const Row& row) { return pair.in(row); }))
                uncovered.insert(name_of(pair));
    }
    EXPECT_TRUE(uncovered.empty()) << uncovered.size() << " pairs are not covered, among them " << *uncovered.begin();
    EXPECT_GT(found, 100);
}
TEST(Variants, HaveEveryPairThatHoppersKernelsServe) {
    expect_every_pair(rows_of_hopper_forward(), [](const Variant& v) {
        return v.config.kernel == Kernel::forward_sm90 && !v.config.has_bias_or_mask();
    });
    expect_every_pair(rows_of_hopper_backward(), [](const Variant& v) {
        return v.config.kernel == Kernel::backward_sm90 || v.config.kernel == Kernel::backward_wide_sm90;
    });
}

TEST(Variants, HaveEveryKernel) {
    const auto list = all_variants();
    for (const Kernel kernel :
         {Kernel::forward_sm80, Kernel::split_forward_sm80, Kernel::deal_splits, Kernel::combine,
          Kernel::backward_prepare, Kernel::backward_sm80, Kernel::backward_finish, Kernel::backward_bias_sm80,
          Kernel::backward_sinks, Kernel::forward_sm90, Kernel::backward_sm90, Kernel::backward_wide_sm90,
          Kernel::dropout_mask, Kernel::merge, Kernel::append_kv, Kernel::latent_forward_sm90, Kernel::combine_shares})
        EXPECT_TRUE(std::ranges::any_of(list, [&](const Variant& v) { return v.config.kernel == kernel; }))
            << static_cast<int>(kernel);
}

// The rows' variants have the tables' tiles; what tune may choose beside them must be there too.
TEST(Variants, HaveTheTilesThatTuneMayChoose) {
    const auto list = all_variants();
    std::set<std::pair<int, int>> tiles;
    for (const Variant& v : list)
        if (v.architecture == 90 && v.config.kernel == Kernel::forward_sm90 && v.config.head_dim == 128 &&
            !v.config.shares)
            tiles.insert({v.config.Br, v.config.Bc});
    EXPECT_EQ(tiles, (std::set<std::pair<int, int>>{{128, 64}, {128, 80}, {128, 128}, {192, 64}, {192, 80}}));
}

}  // namespace
}  // namespace flashtile::variants
