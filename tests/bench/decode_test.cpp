// decode_test.cpp: `bench decode`: its grid, its reference against the oracle, and the JSON of a tiny run.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/decode.h"
#include "bench/exact_decode.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/read_ceiling.h"
#include "oracle/attention.h"

namespace flashtile::cli::bench {
namespace {

Options decode() {
    Options options;
    options.work = {"decode"};
    options.head_dims = {128};
    options.threads = {2};
    return options;
}

TEST(DecodeGrid, LiesBeyondTheCacheAndWithinIt) {
    Options options = decode();
    options.dtypes = {"fp32", "bf16"};
    options.page_sizes = {0, 16};
    const auto points = decode_grid(options, std::int64_t{32} << 20);
    ASSERT_EQ(points.size(), 8U);  // 2 dtypes, 2 lengths, dense or paged
    for (const Point& point : points) {
        EXPECT_EQ(point.heads, 32);
        EXPECT_EQ(point.kv_heads, 8);
        EXPECT_EQ(point.q_size(), 32 * 128);
    }
    // A key and its value take 8 KiB in fp32.
    EXPECT_EQ(points[0].seqlen, 16384);
    EXPECT_DOUBLE_EQ(cache_bytes(points[0]), 4.0 * (32 << 20));
    EXPECT_EQ(points[1].page_size, 16);
    EXPECT_EQ(points[2].seqlen, 1024);
    EXPECT_DOUBLE_EQ(cache_bytes(points[2]), 8 << 20);
    EXPECT_EQ(points[4].seqlen, 32768);
    EXPECT_DOUBLE_EQ(work(points[4]), cache_bytes(points[0]));
}

TEST(DecodeGrid, RefusesWhatDoesNotDivide) {
    Options options = decode();
    options.seqlens = {100};
    options.page_sizes = {16};
    EXPECT_THROW(decode_grid(options, 1 << 20), std::invalid_argument);
    options.page_sizes = {20};
    EXPECT_EQ(decode_grid(options, 1 << 20).size(), 1U);
    options.kv_heads = 5;
    EXPECT_THROW(decode_grid(options, 1 << 20), std::invalid_argument);
    options = decode();
    options.work = {"decode", "memory"};
    EXPECT_THROW(decode_grid(options, 1 << 20), std::invalid_argument);
}

TEST(DecodeReference, IsTheOraclesAttention) {
    for (const flashtile::dtype type : {flashtile::fp32, flashtile::bf16}) {
        const Point p{.pass = Pass::decode,
                      .dtype = type,
                      .head_dim = 8,
                      .seqlen = 33,
                      .batch = 2,
                      .heads = 6,
                      .kv_heads = 2,
                      .threads = 2,
                      .queries = 3};
        const Inputs inputs = random_inputs(p);
        const auto doubles = [](const Numbers& numbers) {
            const std::vector<float> floats = numbers.as_floats();
            return std::vector<double>(floats.begin(), floats.end());
        };
        oracle::Problem problem;
        problem.sequences = {{0, 3, 0, 33}, {3, 3, 33, 33}};
        problem.rows_q = 6, problem.rows_k = 66;
        problem.heads = 6, problem.kv_heads = 2;
        problem.head_dim = problem.head_dim_v = 8;
        problem.q = doubles(inputs.q), problem.k = doubles(inputs.k), problem.v = doubles(inputs.v);
        problem.scale = 1.0 / std::sqrt(8.0);
        const auto exact = oracle::exact_attention(problem, oracle::Pass::forward).out;
        const auto out = exact_decode(p, inputs).out;
        ASSERT_EQ(out.size(), exact.size());
        for (std::size_t n = 0; n < out.size(); ++n) EXPECT_NEAR(out[n], exact[n], 1e-6);
    }
}

TEST(ReadCeiling, IsAPlausibleNumber) {
    ReadCeiling ceiling(std::size_t{4} << 20, 2);
    const double gbytes = ceiling.look();
    EXPECT_GT(gbytes, 0.01);
    EXPECT_LT(gbytes, 1e4);
    EXPECT_GT(last_level_cache_bytes(), 1 << 16);
}

TEST(RunDecode, WritesTheJsonThatOthersRead) {
    const auto path = std::filesystem::temp_directory_path() / "flashtile_decode_test.json";
    Options options = decode();
    options.head_dims = {16};
    options.seqlens = {64};
    options.heads = 4;
    options.kv_heads = 2;
    options.batch = 3;
    options.queries = 2;
    options.dtypes = {"fp32", "bf16"};
    options.page_sizes = {0, 16};
    options.repeats = 1;
    options.json = path.string();
    ASSERT_EQ(run_decode(options), 0);
    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file);
    std::filesystem::remove(path);
    EXPECT_TRUE(json.at("machine").contains("cpu"));
    ASSERT_EQ(json.at("decode").size(), 4U);
    for (const auto& row : json.at("decode")) {
        EXPECT_EQ(row.at("method"), "flashtile");
        EXPECT_EQ(row.at("batch"), 3);
        EXPECT_EQ(row.at("queries"), 2);
        EXPECT_EQ(row.at("seqlen_k"), 64);
        const double bytes = row.at("cache_bytes");
        EXPECT_EQ(bytes, 2 * 3 * 64 * 2 * 16 * (row.at("dtype") == "fp32" ? 4 : 2));
        EXPECT_NEAR(row.at("gbytes_per_s").get<double>(), bytes / row.at("us").get<double>() * 1e-3, 1e-6);
        EXPECT_GT(row.at("read_share").get<double>(), 0.0);
        const double error = row.at("error");
        EXPECT_GT(error, 0.0);
        EXPECT_LT(error, row.at("dtype") == "fp32" ? 1e-5 : 0.02);
    }
}

// Alone in what it is compared with: the reference, which is not one of the methods.
TEST(RunDecode, ComparesTheFirstMethodToo) {
    const Point point{.pass = Pass::decode, .head_dim = 8, .seqlen = 16, .queries = 1};
    std::vector<std::unique_ptr<Method>> methods;
    methods.push_back(make_flashtile(flashtile::isa::automatic));
    const auto of = [](float factor) {
        return [factor](const Point& p, const Inputs& inputs) {
            Results results = exact_decode(p, inputs);
            for (float& value : results.out) value *= factor;
            return results;
        };
    };
    const auto look = [] { return 1.0; };
    EXPECT_EQ(measure(point, methods, look, 1, 0.0, of(1.0f)).rows.size(), 1U);
    const Measurement wrong = measure(point, methods, look, 1, 0.0, of(1.5f));
    EXPECT_TRUE(wrong.rows.empty());
    EXPECT_EQ(wrong.wrong.size(), 1U);
}

}  // namespace
}  // namespace flashtile::cli::bench
