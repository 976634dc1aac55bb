// difference_test.cpp: what is made from a base and a difference is the image, and whatever else the difference holds
// ends in nothing or in that many bytes.
#include "cuda/jit/difference.h"

#include <gtest/gtest.h>

#include <random>

namespace flashtile::gpu {
namespace {

// Instructions of 16 bytes, of a few kinds, so that pieces repeat.
std::string program(unsigned seed, std::size_t instructions) {
    std::mt19937 random(seed);
    std::string text;
    for (std::size_t n = 0; n < instructions; ++n) {
        const auto kind = static_cast<char>(random() % 7);
        text += std::string(12, kind) + std::string(2, static_cast<char>(random() % 3)) +
                std::string(2, static_cast<char>(random()));
    }
    return text;
}

TEST(Difference, GivesTheImageBack) {
    const std::string base = program(1, 500);
    std::string longer = base, moved = base.substr(3000) + base.substr(0, 3000), altered = base;
    longer.insert(4000, program(2, 50));
    for (std::size_t at = 0; at < altered.size(); at += 333) altered[at] ^= 85;
    for (const std::string& image : {base, longer, moved, altered, program(3, 400), std::string(5000, 'x'),
                                     base.substr(0, 1), base.substr(5, 7), std::string()}) {
        EXPECT_EQ(restored(base, difference(base, image), image.size()), image);
        EXPECT_EQ(restored("", difference("", image), image.size()), image);
    }
    EXPECT_LT(difference(base, longer).size(), 1200u);
    EXPECT_LT(difference(base, moved).size(), 20u);
    EXPECT_LT(difference("", std::string(5000, 'x')).size(), 20u);
}

TEST(Difference, WhateverItHoldsEndsInNothingOrInThatManyBytes) {
    const std::string base = program(1, 60), image = base.substr(200) + program(2, 20) + base.substr(0, 500);
    const std::string whole = difference(base, image);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
        EXPECT_NE(restored(base, whole.substr(0, bytes), image.size()), image) << bytes;
    for (const std::uint64_t bytes : {std::uint64_t{0}, image.size() - 1, image.size() + 1, ~std::uint64_t{0}})
        EXPECT_EQ(restored(base, whole, bytes), std::nullopt) << bytes;
    std::mt19937 random(4);
    for (int n = 0; n < 20000; ++n) {
        std::string damaged = whole;
        for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
            damaged[random() % damaged.size()] = static_cast<char>(random());
        const std::optional<std::string> made = restored(base, damaged, image.size());
        EXPECT_TRUE(!made || made->size() == image.size());
    }
}

}  // namespace
}  // namespace flashtile::gpu
