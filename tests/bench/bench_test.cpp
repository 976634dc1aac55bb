// bench_test.cpp: the benchmark's arithmetic against numbers worked out by hand, and the JSON of a tiny run.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

#include "bench/ceilings.h"
#include "bench/measure.h"
#include "bench/on_gpu.h"
#include "bench/options.h"
#include "bench/point.h"
#include "bench/run.h"
#include "median.h"
#include "numbers.h"

namespace flashtile::cli::bench {
namespace {

TEST(Flops, AreThePapersFormula) {
    Point point{.pass = Pass::forward, .head_dim = 64, .causal = false, .seqlen = 2048, .batch = 8, .heads = 32};
    EXPECT_DOUBLE_EQ(flops(point), 274877906944.0);  // 4 * 2048^2 * 64 * 32 * 8
    point.causal = true;
    EXPECT_DOUBLE_EQ(flops(point), 137438953472.0);
    point.pass = Pass::backward;
    EXPECT_DOUBLE_EQ(flops(point), 343597383680.0);
    point.pass = Pass::both;
    EXPECT_DOUBLE_EQ(flops(point), 481036337152.0);
}

TEST(Grid, IsThePapersUnlessScaled) {
    Options options;
    options.work = {"forward"};
    options.threads = {2};
    const auto points = grid(options);
    ASSERT_EQ(points.size(), 24U);  // 6 lengths, 2 head dimensions, causal or not
    for (const Point& point : points) {
        EXPECT_EQ(point.batch * point.seqlen, 16384);
        EXPECT_EQ(point.heads * point.head_dim, 2048);
    }
    options.tokens = 2048;
    EXPECT_EQ(grid(options).size(), 12U);
    options.tokens = 100;
    EXPECT_THROW(grid(options), std::invalid_argument);
}

TEST(Grid, RefusesHeadsThatDoNotDivide) {
    Options options;
    options.heads = 6;
    options.kv_heads = 4;
    EXPECT_THROW(grid(options), std::invalid_argument);
}

TEST(Median, IsTheMiddle) {
    EXPECT_DOUBLE_EQ(median({3.0, 1.0, 20.0}), 3.0);
    EXPECT_DOUBLE_EQ(median({4.0, 1.0, 2.0, 100.0}), 3.0);
}

TEST(Ceiling, OfBf16IsTheBetterOfTheTwo) {
    Ceilings ceilings;
    ceilings.fma_fp32[1] = 100.0;
    Point point{.dtype = flashtile::bf16, .threads = 1};
    EXPECT_DOUBLE_EQ(ceilings.for_point(point), 100.0);
    ceilings.dpbf16[1] = 50.0;
    EXPECT_DOUBLE_EQ(ceilings.for_point(point), 100.0);
    ceilings.dpbf16[1] = 200.0;
    EXPECT_DOUBLE_EQ(ceilings.for_point(point), 200.0);
    point.dtype = flashtile::fp16;
    EXPECT_DOUBLE_EQ(ceilings.for_point(point), 100.0);
}

TEST(Difference, IsRelativeToTheLargestValueAndCatchesNaN) {
    const Results reference{{1.0f, -4.0f}, {}, {}, {}};
    EXPECT_DOUBLE_EQ(difference(Results{{1.5f, -4.0f}, {}, {}, {}}, reference), 0.125);
    EXPECT_GT(difference(Results{{std::nanf(""), -4.0f}, {}, {}, {}}, reference), 1e30);
}

// A method with a wrong result, or one that fails, must not get a speed.
class Wrong final : public Method {
public:
    explicit Wrong(bool fails) : fails_(fails) {}
    std::string name() const override { return "wrong"; }
    std::string isa(const Point&) const override { return "none"; }
    std::string why_not(const Point&) const override { return ""; }
    void prepare(const Point& point, const Inputs&) override { size_ = point.q_size(); }
    double run(int) override {
        if (fails_) throw std::runtime_error("it failed");
        return 0.001;
    }
    Results results() override { return {std::vector<float>(static_cast<std::size_t>(size_), 1.0f), {}, {}, {}}; }
    void release() override {}

private:
    bool fails_;
    std::int64_t size_ = 0;
};

TEST(Measure, GivesNoSpeedToAWrongResult) {
    const Point point{.head_dim = 8, .seqlen = 16};
    for (const bool fails : {false, true}) {
        std::vector<std::unique_ptr<Method>> methods;
        methods.push_back(make_standard());
        methods.push_back(std::make_unique<Wrong>(fails));
        const Measurement measurement = measure(
            point, methods, [] { return 100.0; }, 3, 0.0);
        ASSERT_EQ(measurement.rows.size(), 1U);
        EXPECT_EQ(measurement.rows[0].method, "standard");
        EXPECT_EQ(measurement.wrong.size(), fails ? 0U : 1U);
        EXPECT_EQ(measurement.left_out.size(), fails ? 1U : 0U);
    }
}

// A machine whose speed changes from one moment to the next, and a method that always uses four fifths of it.
struct Machine {
    double gflops() const { return 50.0 + 50.0 * (moment % 4); }
    int moment = 0;
};
class FourFifths final : public Method {
public:
    explicit FourFifths(Machine& machine) : machine_(machine) {}
    std::string name() const override { return "four fifths"; }
    std::string isa(const Point&) const override { return "none"; }
    std::string why_not(const Point&) const override { return ""; }
    void prepare(const Point& point, const Inputs&) override { point_ = point; }
    double run(int count) override {
        // Halfway between this look and the next. One call is longer than a sample must be, so `count` is 1.
        Machine next = machine_;
        ++next.moment;
        return count * flops(point_) / (0.8e9 * 0.5 * (machine_.gflops() + next.gflops()));
    }
    Results results() override { return {}; }
    void release() override {}

private:
    Machine& machine_;
    Point point_;
};

TEST(Measure, TakesTheShareOfTheCeilingAroundEachSample) {
    const Point point{.head_dim = 64, .seqlen = 4096, .batch = 1, .heads = 1, .kv_heads = 1};  // 4.3 GFLOP
    Machine machine{.moment = -1};  // the first look is moment 0
    std::vector<std::unique_ptr<Method>> methods;
    methods.push_back(std::make_unique<FourFifths>(machine));
    const auto look = [&] {
        ++machine.moment;
        return machine.gflops();
    };
    const Measurement measurement = measure(point, methods, look, 7, 0.0);
    ASSERT_EQ(measurement.rows.size(), 1U);
    EXPECT_EQ(machine.moment, 7);  // one look between samples, one at each end
    EXPECT_DOUBLE_EQ(measurement.rows[0].ceiling_share, 0.8);
    EXPECT_DOUBLE_EQ(measurement.ceiling, 125.0);
}

TEST(Ceiling, IsRaisedByALookThatSeesMore) {
    Ceilings ceilings;
    ceilings.fma_fp32[1] = 0.0;
    const Point point{.dtype = flashtile::fp32, .threads = 1};
    double most = 0.0;
    // Each look lasts as long as the ceiling says: the first is short, and may be all of another program's.
    for (int n = 0; n < 4; ++n) {
        most = std::max(most, ceilings.look(point));
        EXPECT_GT(most, 0.0);
        EXPECT_DOUBLE_EQ(ceilings.for_point(point), most);
    }
    const double out_of_reach = 100.0 * most;
    ceilings.fma_fp32[1] = out_of_reach;
    EXPECT_LT(ceilings.look(point), out_of_reach);
    EXPECT_DOUBLE_EQ(ceilings.for_point(point), out_of_reach);
}

TEST(Run, WritesTheJsonThatOthersRead) {
    const auto path = std::filesystem::temp_directory_path() / "flashtile_bench_test.json";
    Options options;
    options.work = {"forward", "backward", "both"};
    options.head_dims = {16};
    options.seqlens = {32};
    options.batch = 1;
    options.heads = 4;
    options.kv_heads = 2;
    options.threads = {1};
    options.dtypes = {"fp32", "bf16", "fp16"};
    options.repeats = 1;
    options.json = path.string();
    ASSERT_EQ(run(options), 0);

    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file);
    std::filesystem::remove(path);
    for (const char* key : {"cpu", "isas", "cores", "compiler", "flashtile", "date", "command"})
        EXPECT_TRUE(json.at("machine").contains(key)) << key;
    EXPECT_GT(json.at("ceilings").at("fma_fp32_gflops").at("1").get<double>(), 0.0);
    const std::set<std::string> keys = {"method", "pass",  "dtype",  "head_dim",     "causal",
                                        "seqlen", "batch", "heads",  "kv_heads",     "threads",
                                        "isa",    "ms",    "gflops", "ceiling_share"};
    ASSERT_EQ(json.at("rows").size(), 36U);  // 3 passes, 3 dtypes, causal or not, 2 methods
    std::set<std::string> methods;
    for (const auto& row : json.at("rows")) {
        std::set<std::string> found;
        for (const auto& item : row.items()) found.insert(item.key());
        EXPECT_EQ(found, keys);
        methods.insert(row.at("method").get<std::string>());
        EXPECT_TRUE(row.at("causal").is_boolean());
        EXPECT_GT(row.at("ms").get<double>(), 0.0);
        EXPECT_GT(row.at("gflops").get<double>(), 0.0);
    }
    EXPECT_EQ(methods, (std::set<std::string>{"flashtile", "standard"}));
}

TEST(OnGpu, SaysTheSameToThePythonProgram) {
    Options options;
    options.device = "cuda";
    options.dtypes = {"bf16"};
    options.work = {"forward", "memory"};
    options.seqlens = {512, 1024};
    options.causal = "1";
    options.heads = 8;
    options.minutes = 1.5;
    options.json = "a.json";
    EXPECT_EQ(gpu_arguments(options),
              (std::vector<std::string>{"--work=forward,memory", "--head-dim=64,128", "--causal=1", "--dtype=bf16",
                                        "--tokens=16384", "--methods=flashtile", "--seqlen=512,1024", "--heads=8",
                                        "--seconds=90", "--json=a.json"}));
    options.threads = {2};
    EXPECT_THROW(gpu_arguments(options), std::invalid_argument);
    options.threads.clear();
    options.against = {"torch", "flash1"};
    EXPECT_THROW(gpu_arguments(options), std::invalid_argument);
    options.against = {"torch"};
    EXPECT_EQ(gpu_arguments(options).size(), 9U);  // without --methods
    options.dtypes = {"bf16", "fp16"};
    EXPECT_THROW(gpu_arguments(options), std::invalid_argument);
}

TEST(Run, RefusesBeforeMeasuring) {
    Options options;
    options.work = {"memory"};
    options.plot = "speeds.png";
    EXPECT_THROW(run(options), std::invalid_argument);
    options.plot.clear();
    options.json = "/no/such/folder/result.json";
    EXPECT_THROW(run(options), std::runtime_error);
}

}  // namespace
}  // namespace flashtile::cli::bench
