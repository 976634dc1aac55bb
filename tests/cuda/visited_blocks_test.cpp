// visited_blocks_test.cpp: a walk visits exactly the blocks that have a row that is seen, in order.
#include "shared/visited_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace flashtile {
namespace {

// By definition: the first rows of the blocks of which some row lies in [first, end).
std::vector<int> with_a_seen_row(int first, int end, int rows) {
    std::vector<int> starts;
    for (int row = first; row < end; ++row)
        if (const int start = row - row % rows; starts.empty() || starts.back() != start) starts.push_back(start);
    return starts;
}

TEST(VisitedBlocks, HaveEverySeenRow) {
    for (const int rows : {1, 3, 8})
        for (int first = 0; first < 20; ++first)
            for (int end = 0; end < 20; ++end) {
                const auto blocks = VisitedBlocks<int>::holding(first, end, rows);
                std::vector<int> forwards, backwards;
                for (int n = 0; n < blocks.count; ++n) {
                    forwards.push_back(blocks.forwards(n));
                    backwards.push_back(blocks.backwards(n));
                }
                EXPECT_EQ(forwards, with_a_seen_row(first, end, rows)) << first << ' ' << end << ' ' << rows;
                std::ranges::reverse(backwards);
                EXPECT_EQ(backwards, forwards) << first << ' ' << end << ' ' << rows;
                for (int n = 0; n + 1 < blocks.count; ++n) {
                    EXPECT_EQ(blocks.next_forwards(blocks.forwards(n)), blocks.forwards(n + 1));
                    EXPECT_EQ(blocks.next_backwards(blocks.backwards(n)), blocks.backwards(n + 1));
                }
            }
}

TEST(VisitedBlocks, AreNoneWhereNobodyLooks) {
    EXPECT_EQ(VisitedBlocks<int>::holding(0, 100, 8, false).count, 0);
}

}  // namespace
}  // namespace flashtile
