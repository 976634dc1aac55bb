// shares_test.cpp: every ticket is handed out once, whichever threads take part. A thread gets its own share's tickets
// first, in order.
#include "cpu/shares.h"

#include <gtest/gtest.h>

#include <thread>

namespace flashtile::unit {
namespace {

using cpu::Shares;
using Tickets = std::vector<std::int64_t>;

TEST(Shares, AreRunsOfNeighboursOfAlmostOneSize) {
    Shares shares(10, 4);
    ASSERT_EQ(shares.count(), 4);
    Tickets first;
    for (std::int64_t s = 0; s < 4; ++s) first.push_back(shares.next(s));
    EXPECT_EQ(first, (Tickets{0, 2, 5, 7}));
    for (std::int64_t s = 0; s < 4; ++s) EXPECT_EQ(shares.next(s), first[static_cast<std::size_t>(s)] + 1);
}

TEST(Shares, OneThreadTakesAllInOrderThenHelpsWhereMostIsLeft) {
    Shares shares(9, 3);
    EXPECT_EQ(shares.next(2), 6);
    Tickets taken;
    for (std::int64_t ticket; (ticket = shares.next(0)) >= 0;) taken.push_back(ticket);
    EXPECT_EQ(taken, (Tickets{0, 1, 2, 3, 4, 7, 5, 8}));
    EXPECT_EQ(shares.next(1), -1);
}

TEST(Shares, NoMoreThanThereAreTickets) {
    EXPECT_EQ(Shares(3, 8).count(), 3);
    Shares none(0, 8);
    EXPECT_EQ(none.count(), 0);
}

TEST(Shares, EveryTicketOnceFromManyThreads) {
    constexpr std::int64_t kTickets = 10000;
    for (int repeat = 0; repeat < 20; ++repeat) {
        Shares shares(kTickets, 4);
        std::vector<std::atomic<int>> taken(kTickets);
        std::vector<std::thread> threads;
        for (std::int64_t s = 0; s < 3; ++s)  // the last share's thread does not come
            threads.emplace_back([&, s] {
                for (std::int64_t ticket; (ticket = shares.next(s)) >= 0;) ++taken[static_cast<std::size_t>(ticket)];
            });
        for (std::thread& thread : threads) thread.join();
        for (const std::atomic<int>& count : taken) ASSERT_EQ(count, 1);
    }
}

}  // namespace
}  // namespace flashtile::unit
