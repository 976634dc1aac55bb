// tune_contest_test.cpp: the order in which tiles are timed, and which one is kept, with samples made up by the test.
#include <gtest/gtest.h>

#include "tune/contest.h"

namespace flashtile::cli::tune {
namespace {

std::vector<Contestant> with_medians(const std::vector<double>& medians) {
    std::vector<Contestant> list;
    for (const double each : medians) {
        list.emplace_back();
        list.back().milliseconds = each;
    }
    return list;
}

TEST(Contest, TheTablesTileStaysWhereNoneBeatsItClearly) {
    EXPECT_EQ(best_of(with_medians({1.0})), 0u);
    EXPECT_EQ(best_of(with_medians({1.0, 0.99, 1.2})), 0u);
    EXPECT_EQ(best_of(with_medians({1.0, 0.982})), 0u);  // by 1.8%
    EXPECT_EQ(best_of(with_medians({1.0, 0.979})), 1u);  // by 2.1%
    EXPECT_EQ(best_of(with_medians({1.0, 0.9, 0.8, 0.85})), 2u);
}

TEST(Contest, WhatIsOutDoesNotWin) {
    std::vector<Contestant> list = with_medians({1.0, 0.0, 0.9});
    list[1].out_because = "wrong";
    EXPECT_EQ(best_of(list), 2u);
}

TEST(Contest, SamplesTakeTurnsAndTheMedianCounts) {
    std::string order;
    std::vector<Contestant> list(3);
    const std::vector<double> slow_at_first = {9.0, 9.0, 2.0, 1.0, 3.0};
    std::size_t taken = 0;
    list[0].sample = [&] { return order += 'a', slow_at_first.at(taken++); };
    list[1].out_because = "left out";
    list[1].sample = [&]() -> double { throw std::logic_error("timed, and it is out"); };
    list[2].sample = [&] { return order += 'c', 5.0; };
    time_in_turns(list, 1e-9);  // as few as there may be
    EXPECT_EQ(order, "accaaccaac");
    EXPECT_EQ(list[0].milliseconds, 3.0);
    EXPECT_EQ(list[2].milliseconds, 5.0);
}

TEST(Contest, TimeIsLimitedAndSoAreSamples) {
    int samples = 0;
    std::vector<Contestant> list(1);
    list[0].sample = [&] { return ++samples, 1.0; };
    time_in_turns(list, 3600.0);
    EXPECT_EQ(samples, 201);
}

TEST(Contest, TheMeasurementJoinsTheChoice) {
    std::vector<Contestant> list = with_medians({1.5, 1.25});
    list[1].choice = "kernel=k Br=64 nanoseconds=0 table_nanoseconds=0";
    EXPECT_EQ(measured_choice(list[1], list[0]), "kernel=k Br=64 nanoseconds=1250000 table_nanoseconds=1500000");
    list[1].choice = "kernel=k Br=64 nanoseconds=7 table_nanoseconds=0";
    EXPECT_THROW(measured_choice(list[1], list[0]), std::logic_error);
}

}  // namespace
}  // namespace flashtile::cli::tune
