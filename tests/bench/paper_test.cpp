// paper_test.cpp: which points `bench paper` finds time for, and where OpenVINO takes part.
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "bench/contestants.h"
#include "bench/openvino_method.h"
#include "bench/paper.h"
#include "bench/paper_on_gpu.h"
#include "schedule.h"

namespace flashtile::cli::bench {
namespace {

Point of_length(std::int64_t n) {
    return {.pass = Pass::forward, .head_dim = 64, .seqlen = n, .batch = 1, .heads = 4, .kv_heads = 4};
}

TEST(Schedule, SharesWhatIsLeftAmongTheWorksThatFit) {
    // Each of twice the length has four times the FLOPs.
    Schedule schedule({{1e9, "forward"}, {4e9, "forward"}, {16e9, "forward"}},
                      {.calls = 3.0, .overhead_seconds = 0.15});
    // Nothing is known yet: all fit, and are alike.
    EXPECT_DOUBLE_EQ(schedule.share(0, 30.0).value(), 10.0);
    EXPECT_FALSE(schedule.share(0, 0.1));

    // Two methods, 0.4 s a call of both. The least is 3 calls and 0.15 s a method: 5.1 s at twice the length, 19.5 s at
    // four times.
    schedule.measured(0, 0.4, 2);
    EXPECT_DOUBLE_EQ(schedule.share(1, 49.2).value(), 49.2 * 5.1 / 24.6);
    EXPECT_DOUBLE_EQ(schedule.share(1, 20.0).value(), 20.0);  // the last does not fit
    EXPECT_FALSE(schedule.share(1, 5.0));
    EXPECT_FALSE(schedule.share(2, 19.0));

    // Another pass is judged by the slowest that is known, until it is known itself.
    Schedule passes({{1e9, "forward"}, {2.5e9, "backward"}}, {.calls = 3.0, .overhead_seconds = 0.15});
    passes.measured(0, 0.4, 2);
    EXPECT_FALSE(passes.share(1, 3.2));  // 2.5 times the FLOPs: 3.3 s
    EXPECT_TRUE(passes.share(1, 3.4));
}

TEST(OpenVino, TakesPartInForwardOfWholeHeads) {
    Point point = of_length(128);
    EXPECT_EQ(openvino_lacks(point), "");
    point.dtype = flashtile::bf16;
    EXPECT_EQ(openvino_lacks(point), "");
    point.dtype = flashtile::fp16;
    EXPECT_NE(openvino_lacks(point), "");
    point = of_length(128);
    point.kv_heads = 2;
    EXPECT_NE(openvino_lacks(point), "");
    point = of_length(128);
    point.pass = Pass::both;
    EXPECT_NE(openvino_lacks(point), "");

    Options options;
    options.against = {"openvino"};
    EXPECT_THROW(contestants(options, {point}), std::invalid_argument);  // before a process is started
}

TEST(Paper, RefusesBeforeMeasuring) {
    Options options;
    options.work = {"paper", "forward"};
    EXPECT_THROW(run_paper(options), std::invalid_argument);
    options.work = {"paper"};
    options.json = "a.json";
    EXPECT_THROW(run_paper(options), std::invalid_argument);

    const auto refused = [](auto change) {
        Options of_gpu;
        of_gpu.work = {"paper"};
        of_gpu.dtypes = {"bf16"};
        change(of_gpu);
        EXPECT_THROW(run_paper_on_gpu(of_gpu), std::invalid_argument);
    };
    refused([](Options& o) { o.work = {"paper", "forward"}; });
    refused([](Options& o) { o.dtypes = {"fp32"}; });
    refused([](Options& o) { o.against = {"openvino"}; });
    refused([](Options& o) { o.threads = {1}; });
    refused([](Options& o) { o.batch = 2; });
}

}  // namespace
}  // namespace flashtile::cli::bench
