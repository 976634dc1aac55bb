// bench_cuda_test.cpp: what `bench baselines` makes of its times, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench_cuda/report.h"

namespace flashtile::cli::bench_cuda {
namespace {

MeasuredPoint point_of(double standard, double general) {
    const Shape shape{.batch = 8, .seqlen_q = 2048, .seqlen_k = 2048, .heads = 32, .kv_heads = 32, .head_dim = 64};
    return {Pass::forward,
            shape,
            {{.method = kStandard, .tile = "", .milliseconds = standard},
             {.method = kGeneral, .tile = "128x64", .milliseconds = general}}};
}

TEST(BenchCuda, FlopsAreThePapersFormula) {
    Shape shape = point_of(1.0, 1.0).shape;
    EXPECT_DOUBLE_EQ(flops(shape, Pass::forward), 274877906944.0);  // 4 * 2048^2 * 64 * 32 * 8
    shape.causal = true;
    EXPECT_DOUBLE_EQ(flops(shape, Pass::backward), 343597383680.0);
}

TEST(BenchCuda, MeansAreGeometricAndOfPointsThatHaveBoth) {
    // a method without a time was left out
    const std::vector<MeasuredPoint> points = {point_of(4.0, 2.0), point_of(8.0, 1.0), point_of(0.0, 1.0)};
    EXPECT_DOUBLE_EQ(speedup(points, kGeneral, kStandard), 4.0);  // of 2 and 8
    EXPECT_DOUBLE_EQ(speedup(points, kGeneral, kLibrary), 0.0);
    EXPECT_NEAR(mean_teraflops(points, kStandard), 274877906944.0 / 1e9 / std::sqrt(32.0), 1e-9);
}

TEST(BenchCuda, LeastIsOfThePointsThatHaveBoth) {
    std::vector<MeasuredPoint> points = {point_of(4.0, 2.0), point_of(8.0, 1.0), point_of(0.0, 1.0)};
    EXPECT_DOUBLE_EQ(least_speedup(points, kGeneral, kStandard), 2.0);
    EXPECT_DOUBLE_EQ(least_memory_ratio(points, kGeneral, kStandard), 0.0);
    for (const std::size_t n : {0, 1}) {
        points[n].rows[0].extra_bytes = 1000 * (2 - n);
        points[n].rows[1].extra_bytes = 100;
    }
    EXPECT_DOUBLE_EQ(least_memory_ratio(points, kGeneral, kStandard), 10.0);
}

TEST(BenchCuda, NamesSayWhichChangesAMethodHas) {
    EXPECT_EQ(name_of(WorkPartition{}), "fa1");
    EXPECT_EQ(name_of(WorkPartition{.over_sequence = true}), "fa1+3.2");
    EXPECT_EQ(name_of(kAllWays), "fa1+3.1+3.2+3.3");
}

TEST(BenchCuda, WhatWasLeftOutHasNoTimeInTheJson) {
    MeasuredPoint point = point_of(4.0, 2.0);
    point.rows[0].out_because = "no memory";
    const nlohmann::json json = to_json(point);
    EXPECT_FALSE(json["methods"][0].contains("ms"));
    EXPECT_EQ(json["methods"][0]["left_out"], "no memory");
    EXPECT_EQ(json["methods"][1]["ms"], 2.0);
}

}  // namespace
}  // namespace flashtile::cli::bench_cuda
