// block_lists_test.cpp: what is wrong with lists of blocks is said before anything is written; and lists that name all
// blocks change no bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <functional>
#include <string>
#include <vector>

namespace flashtile::unit {
namespace {

// 150 queries and 200 keys in blocks of 64 x 128: three rows of two.
struct Call {
    std::vector<float> q = numbers(150), k = numbers(200), v = numbers(200), out = std::vector<float>(2 * 150 * 16);
    std::vector<std::int32_t> counts = {1, 2, 0}, indices = {1, -9, 0, 1, 99, 0};
    std::vector<std::int32_t> full_counts = {1, 0, 2}, full_indices = {0, 7, 7, 7, 1, 0};
    options o;

    Call() {
        const auto list = [](std::vector<std::int32_t>& x, std::initializer_list<std::int64_t> shape) {
            return view(x.data(), dtype::int32, shape);
        };
        o.block_lists = {64,
                         128,
                         list(counts, {1, 1, 3}),
                         list(indices, {1, 1, 3, 2}),
                         list(full_counts, {1, 1, 3}),
                         list(full_indices, {1, 1, 3, 2})};
    }

    static std::vector<float> numbers(std::size_t rows) {
        std::vector<float> x(2 * rows * 16);
        for (std::size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(n * 7919 % 101) / 50.0f - 1.0f;
        return x;
    }
    // "", or what the call is refused with.
    std::string answer() {
        const auto rows = [](std::vector<float>& x) {
            return view(x.data(), fp32, {1, static_cast<std::int64_t>(x.size()) / 32, 2, 16});
        };
        try {
            forward(o, rows(q), rows(k), rows(v), rows(out));
        } catch (const error& refused) {
            EXPECT_EQ(out, std::vector<float>(out.size())) << "written before it was refused";
            return refused.what();
        }
        return "";
    }
};

TEST(BlockLists, AreRefusedWhereTheyAreWrong) {
    struct Refusal {
        std::function<void(Call&)> spoil;
        const char* said;
    };
    const Refusal refusals[] = {
        {[](Call& c) { c.o.block_lists.block_q = 96; }, "block_lists.block_q is 96, allowed is a multiple of 64"},
        {[](Call& c) { c.o.block_lists.block_k = 0; }, "block_lists.block_k is 0, allowed is a multiple of 64"},
        {[](Call& c) { c.o.block_lists.counts = {}; }, "block_lists.counts is NULL"},
        {[](Call& c) { c.o.block_lists.full_indices = {}; }, "block_lists.full_indices is NULL"},
        {[](Call& c) { c.o.block_lists.counts = view(c.counts.data(), dtype::int32, {3}); },
         "block_lists.counts.rank is 1"},
        {[](Call& c) {
             c.o.block_lists.counts = view(c.counts.data(), fp32, {1, 1, 3});
         },
         "block_lists.counts.dtype is fp32, allowed is int32"},
        {[](Call& c) {
             c.o.block_lists.indices = view(c.indices.data(), dtype::int32, {1, 1, 2, 3});
         },
         "block_lists.indices.shape is (1, 1, 2, 3)"},
        {[](Call& c) { c.counts[0] = 3; }, "block_lists.counts[0, 0, 0] is 3, allowed is 0 to block_lists.indices' 2"},
        {[](Call& c) { c.counts[2] = -1; }, "block_lists.counts[0, 0, 2] is -1"},
        {[](Call& c) { c.indices[0] = 2; },
         "block_lists.indices[0, 0, 0, 0] is 2, allowed is a block of keys, from 0 to 1"},
        {[](Call& c) { c.indices[3] = 0; },
         "block_lists.indices[0, 0, 1, 1] is 0, allowed is a block that no entry before names"},
        {[](Call& c) { c.full_indices[0] = 1; },
         "block_lists.full_indices[0, 0, 0, 0] is 1, allowed is a block that no entry before names"},
    };
    EXPECT_EQ(Call().answer(), "");
    for (const Refusal& refusal : refusals) {
        Call call;
        refusal.spoil(call);
        EXPECT_NE(call.answer().find(refusal.said), std::string::npos) << refusal.said;
    }
}

TEST(BlockLists, OfAllBlocksChangeNothing) {
    Call listed, plain;
    listed.indices = {1, 0, 0, 1, 1, 0};
    listed.counts = {2, 2, 2};
    listed.full_counts = {0, 0, 0};
    plain.o.block_lists = {};
    EXPECT_EQ(listed.answer(), "");
    EXPECT_EQ(plain.answer(), "");
    EXPECT_EQ(listed.out, plain.out);
}

}  // namespace
}  // namespace flashtile::unit
