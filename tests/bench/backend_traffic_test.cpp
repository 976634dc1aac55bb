// backend_traffic_test.cpp: what the CPU backend's kernels move, counted, against closed forms that are written here
// once more, tensor by tensor and equal to the element; and the analytic ones, which are within the terms of rounding
// that docs/algorithm.md derives.
#include "traffic/backend_traffic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/share.h"
#include "traffic/rows.h"

namespace flashtile::cli::traffic {
namespace {

using counting::CountedPass;
using counting::Moved;
using counting::Moves;

constexpr std::int64_t Br = 128, Bc = 128;  // of the backward

std::int64_t bytes_of(DType dtype) {
    return dtype == DType::fp32 ? 4 : 2;
}

std::string text(const CountedPass& c) {
    return fmt::format("{}, {} bytes, group {}, N {}, d {}, causal {}, task_rows {}",
                       c.pass == Pass::forward ? "forward" : "backward", bytes_of(c.dtype), c.group, c.N, c.d, c.causal,
                       c.task_rows);
}

std::int64_t blocks(std::int64_t N, std::int64_t rows) {
    return (N + rows - 1) / rows;
}

std::int64_t sum_below(std::int64_t n) {  // 0 + 1 + .. + (n - 1)
    return n * (n - 1) / 2;
}

// Keys that all blocks of R queries meet: up to the last that the block's last query sees.
std::int64_t keys_met(std::int64_t N, std::int64_t R, bool causal) {
    const std::int64_t T = blocks(N, R);
    return causal ? R * sum_below(T) + N : N * T;
}

// Queries that all blocks of K keys meet, in whole blocks of `unit` queries, from the one that sees the first key on.
std::int64_t queries_met(std::int64_t N, std::int64_t K, std::int64_t unit, bool causal) {
    const std::int64_t T = blocks(N, K);
    if (!causal) return N * T;
    if (K >= unit) return N * T - K * sum_below(T);
    const std::int64_t inside = unit / K, whole = T / inside, left = T % inside;
    return N * T - unit * (inside * sum_below(whole) + left * whole);
}

Moves expected_moves(const CountedPass& c) {
    const std::int64_t N = c.N, d = c.d, g = c.group, size = bytes_of(c.dtype);
    Moves m;
    const auto set = [&](Moved what, std::int64_t loads, std::int64_t stores, std::int64_t bytes) {
        m[what] = {loads, stores, bytes};
    };
    if (c.pass == Pass::forward) {
        const std::int64_t keys = g * keys_met(N, c.task_rows, c.causal) * d;
        set(Moved::q, g * N * d, 0, g * N * d * size);
        set(Moved::k, keys, 0, keys * size);
        set(Moved::v, keys, 0, keys * size);
        set(Moved::out, 0, g * N * d, g * N * d * size);
        set(Moved::lse, 0, g * N, g * N * 4);
        return m;
    }
    const std::int64_t rows = g * queries_met(N, c.task_rows, Br, c.causal);
    const std::int64_t sums = g * queries_met(N, std::min(c.task_rows, Bc), 1, c.causal);
    set(Moved::q, rows * d, 0, rows * d * size);
    set(Moved::k, g * N * d, 0, g * N * d * size);
    set(Moved::v, g * N * d, 0, g * N * d * size);
    set(Moved::out, g * N * d, 0, g * N * d * size);
    set(Moved::dout, (rows + g * N) * d, 0, (rows + g * N) * d * size);
    set(Moved::lse, rows + g * N, g * N, (rows + 2 * g * N) * 4);
    set(Moved::D, rows, g * N, (rows + g * N) * 4);
    set(Moved::dq, (sums + g * N) * d, (sums + 2 * g * N) * d, (2 * sums + 2 * g * N) * d * 4 + g * N * d * size);
    set(Moved::dk, 0, N * d, N * d * size);
    set(Moved::dv, 0, N * d, N * d * size);
    return m;
}

baselines::Tile tile_of(const CountedPass& c) {
    return c.pass == Pass::forward ? baselines::Tile{c.task_rows, Bc} : baselines::Tile{Br, std::min(c.task_rows, Bc)};
}

void expect_moves(const CountedPass& c, const Moves& counted, const Moves& expected) {
    for (std::size_t n = 0; n < counted.of.size(); ++n) {
        ASSERT_EQ(counted.of[n].loads, expected.of[n].loads) << text(c) << ", tensor " << n;
        ASSERT_EQ(counted.of[n].stores, expected.of[n].stores) << text(c) << ", tensor " << n;
        ASSERT_EQ(counted.of[n].bytes, expected.of[n].bytes) << text(c) << ", tensor " << n;
    }
}

// The formulas of docs/algorithm.md once more, and their terms of rounding.
void expect_analytic(const CountedPass& c, const Moves& counted) {
    const auto N = static_cast<double>(c.N), d = static_cast<double>(c.d), g = static_cast<double>(c.group);
    const auto K = static_cast<double>(c.task_rows), B = std::min(K, 128.0);
    const auto turns = [&](double rows) { return c.causal ? N * N / (2 * rows) + N / 2 : N * N / rows; };
    double elements = 0.0, below = 0.0, above = 0.0;
    if (c.pass == Pass::forward) {
        elements = g * (2 * N * d + N + 2 * d * turns(K));
        below = c.causal ? g * 2 * d * (K + 1) / 8 : 0.0;
        above = g * 2 * d * N;
    } else {
        elements = g * (7 * N * d + 3 * N + (2 * d + 2) * turns(K) + 2 * d * turns(B)) + 2 * N * d;
        const double behind = (N / K + 1) * std::max(0.0, 128 - K);
        above = c.causal ? g * ((2 * d + 2) * ((K + 1) / 8 + behind) + 2 * d * (B + 1) / 8) : g * (4 * d + 2) * N;
    }
    const baselines::AnalyticTraffic analytic = analytic_moves(c, tile_of(c));
    ASSERT_NEAR(analytic.elements, elements, 1e-9 * elements) << text(c);
    ASSERT_NEAR(analytic.below, below, 1e-9 * elements) << text(c);
    ASSERT_NEAR(analytic.above, above, 1e-9 * elements) << text(c);
    const counting::TensorMoves all = counted.all();
    ASSERT_TRUE(analytic.holds({all.loads, all.stores}))
        << text(c) << ": " << elements << ", counted " << all.loads + all.stores;
    const bool whole = c.N % c.task_rows == 0 && (c.pass == Pass::forward || c.task_rows >= Br || !c.causal);
    if (whole) {
        ASSERT_NEAR(elements, static_cast<double>(all.loads + all.stores), 0.5) << text(c);
    }
}

void check(const CountedPass& c) {
    const Moves counted = count_moves(c);
    expect_moves(c, counted, expected_moves(c));
    if (!testing::Test::HasFatalFailure()) expect_analytic(c, counted);
}

// Both passes, with and without a mask.
void check_passes(CountedPass c) {
    for (const Pass pass : {Pass::forward, Pass::backward})
        for (const bool causal : {false, true}) {
            c.pass = pass;
            c.causal = causal;
            ASSERT_NO_FATAL_FAILURE(check(c));
        }
}

// N 512 to 16k and two lengths that no block divides; with FLASHTILE_TEST_EVERY, as sanitizers have it, a part of them.
TEST(BackendTraffic, IsTheClosedFormAndNearTheAnalyticOne) {
    const conformance::Share share = conformance::share_of_list();
    std::size_t index = 0;
    for (const std::int64_t N : {512, 1000, 1024, 2048, 4096, 8191, 8192, 16384})
        for (const std::int64_t d : {32, 64, 128, 256})
            if (share.has(index++)) {
                ASSERT_NO_FATAL_FAILURE(check_passes({.N = N, .d = d, .task_rows = 256}));
            }
}

// As many rows as a task of any plan has: a panel or a few keys where threads want work, up to the most.
TEST(BackendTraffic, OfEveryTask) {
    for (const std::int64_t task_rows : {32, 64, 128, 512, 1024})
        for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
            ASSERT_NO_FATAL_FAILURE(check_passes({.dtype = dtype, .N = 1100, .d = 64, .task_rows = task_rows}));
}

// Query heads that share a key head write dK and dV once together; forward reads K and V for each of them.
TEST(BackendTraffic, OfQueryHeadsThatShareAKeyHead) {
    for (const std::int64_t group : {2, 8})
        for (const std::int64_t task_rows : {64, 512})
            ASSERT_NO_FATAL_FAILURE(check_passes({.group = group, .N = 1000, .d = 64, .task_rows = task_rows}));
}

// A row of `flashtile io` has the plan that the library makes for the whole problem, and counts all of its heads.
TEST(BackendTraffic, OfARow) {
    Options options;
    options.passes = {"forward", "backward", "both"};
    options.algorithms = {"cpu"};
    options.seqlens = {1000};
    options.dtype = "fp32";
    options.heads = 6;
    options.kv_heads = 2;
    options.causal = true;
    const std::vector<Row> rows = rows_of(options);
    ASSERT_EQ(rows.size(), 3U);
    for (std::size_t n = 0; n < 2; ++n) {
        const CountedPass c = {.pass = n == 0 ? Pass::forward : Pass::backward,
                               .group = 3,
                               .N = 1000,
                               .d = 64,
                               .causal = true,
                               .task_rows = rows[n].plan.task_rows};
        Moves expected;
        expected.add(expected_moves(c), 2);
        expect_moves(c, rows[n].moves, expected);
        EXPECT_EQ(rows[n].counted.elements(), expected.all().loads + expected.all().stores);
        EXPECT_EQ(rows[n].bytes, static_cast<double>(expected.all().bytes));
        EXPECT_EQ(rows[n].tile.Br, tile_of(c).Br);
        EXPECT_EQ(rows[n].tile.Bc, tile_of(c).Bc);
        EXPECT_TRUE(rows[n].analytic.holds(rows[n].counted));
    }
    EXPECT_EQ(rows[2].counted.elements(), rows[0].counted.elements() + rows[1].counted.elements());
    EXPECT_EQ(rows[2].bytes, rows[0].bytes + rows[1].bytes);
}

}  // namespace
}  // namespace flashtile::cli::traffic
