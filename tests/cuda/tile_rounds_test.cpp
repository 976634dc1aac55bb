// tile_rounds_test.cpp: every tile of a problem is dealt out once, whatever its shape and however many thread blocks.
#include "shared/tile_rounds.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashtile {
namespace {

// How often each tile is dealt out, head by head, as the comment on TileRounds has it.
std::vector<unsigned> dealt_out(const TileRounds& r, unsigned thread_blocks) {
    std::vector<unsigned> times(std::size_t{r.heads} * r.tiles);
    const auto deal = [&](unsigned head, unsigned tile) { ++times.at(std::size_t{head} * r.tiles + tile); };
    for (unsigned pair = 0; pair < r.rounds * thread_blocks; ++pair) {
        const unsigned shortest = pair % r.pairs, longest = r.tiles - 1 - shortest;
        deal(pair / r.pairs, longest);
        if (longest != shortest) deal(pair / r.pairs, shortest);
    }
    unsigned rest = 0;
    for (unsigned head = 0; head < r.heads; ++head)
        for (unsigned tile = 0; tile < r.tiles; ++tile) {
            const bool begun = r.taken > 0 && head + 1 == r.first_head;
            if (head >= r.first_head || (begun && tile >= r.taken && tile < r.tiles - r.taken)) {
                deal(head, tile);
                ++rest;
            }
        }
    EXPECT_EQ(rest, r.rest);
    return times;
}

TEST(TileRounds, DealEveryTileOutOnce) {
    for (unsigned tiles = 0; tiles < 12; ++tiles)
        for (const unsigned heads : {0u, 1u, 5u, 64u, 257u})
            for (const unsigned thread_blocks : {1u, 7u, 132u, 396u})
                for (const bool unequal : {false, true}) {
                    SCOPED_TRACE(testing::Message() << tiles << " tiles, " << heads << " heads, " << thread_blocks);
                    const TileRounds r = tile_rounds(tiles, heads, thread_blocks, unequal);
                    for (const unsigned times : dealt_out(r, thread_blocks)) ASSERT_EQ(times, 1u);
                }
}

TEST(TileRounds, LeaveOneToTwoRoundsOfUnequalTilesForTheEnd) {
    const unsigned thread_blocks = 132;
    const TileRounds r = tile_rounds(8, 256, thread_blocks, true);
    EXPECT_EQ(r.rounds, 256u * 4 / thread_blocks - 1);
    EXPECT_GE(r.rest, 2 * thread_blocks);
    EXPECT_LE(r.rest, 4 * thread_blocks);
    EXPECT_EQ(tile_rounds(8, 256, thread_blocks, false).rest, 8u * 256);
}

}  // namespace
}  // namespace flashtile
