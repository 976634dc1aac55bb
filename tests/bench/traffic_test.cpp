// traffic_test.cpp: what the papers' algorithms move, counted, against closed forms that are written here once more:
// with whole blocks equal, and without them within the terms of rounding that docs/algorithm.md derives.
#include "baselines/traffic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "baselines/flash1.h"
#include "baselines/flash2.h"
#include "baselines/one_head.h"

namespace flashtile::baselines {
namespace {

constexpr Algorithm algorithms[] = {Algorithm::standard, Algorithm::flash1, Algorithm::flash2};
constexpr Direction directions[] = {Direction::forward, Direction::backward};

std::string text(const TrafficProblem& p) {
    return fmt::format("algorithm {}, direction {}, N {}, d {}, M {}", static_cast<int>(p.algorithm),
                       static_cast<int>(p.direction), p.N, p.d, p.M);
}

// f(problem) for N 512 .. 16k and two lengths that no block divides, d 32 .. 256, M 32 KB .. 1 MB of fp32.
template <class Function>
void sweep(Function f) {
    for (const std::int64_t N : {512, 1000, 1024, 2048, 4096, 8191, 8192, 16384})
        for (const std::int64_t d : {32, 64, 128, 256})
            for (std::int64_t bytes = 32768; bytes <= 1048576; bytes *= 2)
                for (const Direction direction : directions)
                    for (const Algorithm algorithm : algorithms)
                        f(TrafficProblem{
                            .algorithm = algorithm, .direction = direction, .N = N, .d = d, .M = bytes / 4});
}

// The loads and stores of each line of the algorithms, added up.
std::int64_t whole_blocks(const TrafficProblem& p) {
    const std::int64_t N = p.N, d = p.d, Nd = p.N * p.d;
    const std::int64_t rows = (p.M + 4 * d - 1) / (4 * d);
    const std::int64_t T = (N + rows - 1) / rows;
    const bool forward = p.direction == Direction::forward;
    switch (p.algorithm) {
        case Algorithm::standard:  // lines of Algorithm 0 and of Algorithm 3
            return forward ? (2 * Nd + N * N) + 2 * N * N + (N * N + 2 * Nd)
                           : (N * N + 2 * Nd) + (2 * Nd + N * N) + 3 * N * N + 2 * (N * N + 2 * Nd);
        case Algorithm::flash1:
            return forward ? (Nd + 2 * N) + 2 * Nd + T * ((2 * Nd + 2 * N) + (Nd + 2 * N))
                           : 3 * Nd + 2 * Nd + T * ((4 * Nd + 2 * N) + Nd) + 2 * Nd;
        case Algorithm::flash2:
            return forward ? Nd + T * 2 * Nd + Nd + N
                           : Nd + (2 * Nd + N) + 2 * Nd + T * ((3 * Nd + 2 * N) + Nd) + 2 * Nd;
    }
    return 0;
}

TEST(Traffic, IsTheClosedFormOfWholeBlocksAndNearTheAnalyticOne) {
    sweep([](const TrafficProblem& p) {
        const auto N = static_cast<double>(p.N), d = static_cast<double>(p.d), M = static_cast<double>(p.M);
        const AnalyticTraffic analytic = analytic_traffic(p);
        const Traffic counted = counted_traffic(p);
        ASSERT_EQ(counted.elements(), whole_blocks(p)) << text(p);
        ASSERT_TRUE(analytic.holds(counted))
            << text(p) << ": " << analytic.elements << ", counted " << counted.elements();
        if (p.algorithm == Algorithm::standard) return;
        // Expanded, with 4 N d / M turns of the outer loop.
        const bool first = p.algorithm == Algorithm::flash1, forward = p.direction == Direction::forward;
        const double quadratic = forward ? (first ? 12.0 : 8.0) : (first ? 20.0 : 16.0);
        const double vectors = forward ? (first ? 16.0 : 0.0) : 8.0;
        const double linear = forward ? (first ? 3 * d + 2 : 2 * d + 1) : (first ? 7 * d : 7 * d + 1);
        ASSERT_NEAR(analytic.elements, quadratic * N * N * d * d / M + vectors * N * N * d / M + linear * N,
                    1e-9 * analytic.elements);
        // A block more, or as much as rounding M / 4d up to whole rows takes away.
        const double turn = (quadratic * d + vectors) / 4.0 * N;
        ASSERT_NEAR(analytic.above, turn, 1e-9 * turn);
        ASSERT_NEAR(analytic.below, turn * 4.0 * N * d / M / (M / (4.0 * d) + 1.0), 1e-9 * turn);
    });
}

TEST(Traffic, FastMemoryHoldsTheBlocks) {
    const TrafficProblem forward{.N = 1024, .d = 64, .M = 4 * 64 * 128};  // Bc 128, Br 64
    EXPECT_EQ(counted_traffic(forward).fast, 2 * 128 * 64 + 2 * 64 * 64 + 2 * 64 + 64 * 128);
    TrafficProblem backward = forward;
    backward.direction = Direction::backward;
    EXPECT_EQ(counted_traffic(backward).fast, 4 * 128 * 64 + 4 * 64 * 64 + 2 * 64 + 2 * 64 * 128);
}

TEST(Traffic, OfBlocksThatAreSkipped) {
    sweep([](TrafficProblem p) {
        if (p.algorithm == Algorithm::standard || p.N > 4096) return;
        const std::int64_t all = counted_traffic(p).elements();
        for (const double density : {0.25, 0.6}) {
            p.density = density;
            const Traffic counted = counted_traffic(p);
            ASSERT_TRUE(analytic_traffic(p).holds(counted)) << text(p) << ", density " << density;
            ASSERT_LE(counted.elements(), all);
        }
        p.density = 1.0, p.causal = true;
        const Traffic counted = counted_traffic(p);
        ASSERT_TRUE(analytic_traffic(p).holds(counted)) << text(p) << ", causal";
        ASSERT_LE(counted.elements(), all);
    });
    // 4 x 4 blocks, of which 10 are on and below the diagonal.
    const TrafficProblem p{.N = 64, .d = 8, .tile = {16, 16}, .causal = true};
    EXPECT_EQ(counted_traffic(p).elements(), 3 * 64 * 8 + 2 * 64 + 10 * 16 * (3 * 8 + 4));
}

TEST(Traffic, OfATileThatIsGiven) {
    for (const Tile tile : {Tile{64, 128}, Tile{100, 37}})
        for (const Direction direction : directions)
            for (const Algorithm algorithm : {Algorithm::flash1, Algorithm::flash2})
                for (const bool causal : {false, true}) {
                    const TrafficProblem p{algorithm, direction, 1000, 64, 0, tile, causal};
                    ASSERT_TRUE(analytic_traffic(p).holds(counted_traffic(p))) << text(p);
                }
}

// The notes' example (shared memory of 192 KiB in fp16): 17 million against N^2 d^2 / M. The FlashAttention paper's
// Figure 2: GPT-2 medium moves 4.4 GB, forward and backward, of 1024 heads in fp16.
TEST(Traffic, OfThePapersExamples) {
    TrafficProblem p{.N = 4096, .d = 64, .M = 192 * 1024 / 2};
    EXPECT_EQ(counted_traffic(p).elements(), 9625600);
    p.N = 1024;
    double counted = 0.0, analytic = 0.0;
    for (const Direction direction : directions) {
        p.direction = direction;
        counted += 2.0 * 1024.0 * static_cast<double>(counted_traffic(p).elements());
        analytic += 2.0 * 1024.0 * analytic_traffic(p).elements;
    }
    EXPECT_NEAR(counted, 4.4e9, 0.22e9);
    EXPECT_NEAR(analytic, 4.4e9, 0.22e9);
}

// Runs with and without arithmetic count the same.
TEST(Traffic, IsThatOfARunWithArithmetic) {
    const std::int64_t N = 50, d = 8;
    const Tile tile{16, 20};
    const Shape shape{.seqlen_q = N, .seqlen_k = N, .head_dim = d, .causal = true, .scale = 0.3f};
    std::vector<float> q(static_cast<std::size_t>(N * d)), k(q), v(q), dout(q), out(q), dq(q), dk(q), dv(q);
    std::vector<float> l(static_cast<std::size_t>(N)), m(l), L(l), D(l);
    std::vector<float> P(static_cast<std::size_t>(N * N)), dP(P);
    for (std::size_t n = 0; n < q.size(); ++n) {
        const auto x = static_cast<float>(n);
        q[n] = std::sin(x), k[n] = std::cos(x), v[n] = std::sin(2 * x), dout[n] = std::cos(3 * x);
    }
    const auto rows = [&](std::vector<float>& x) { return Slow<float>(Matrix<float>{x.data(), N, d, d}); };
    const auto vector = [&](std::vector<float>& x) { return Slow<float>(Matrix<float>{x.data(), N, 1, 1}); };
    const Slow<float> scores(Matrix<float>{P.data(), N, N, N}), gradients(Matrix<float>{dP.data(), N, N, N});
    const HeadMasking mask(shape, {}, tile, 0, 0);
    const auto expect_counted = [&](Algorithm algorithm, Direction direction, auto run) {
        Counted count;
        run(Memory(count));
        const TrafficProblem p{algorithm, direction, N, d, 0, tile, true};
        const Traffic walked = counted_traffic(p);
        EXPECT_EQ(count.loads, walked.loads) << text(p);
        EXPECT_EQ(count.stores, walked.stores) << text(p);
        EXPECT_EQ(count.fast, walked.fast) << text(p);
    };
    expect_counted(Algorithm::standard, Direction::forward, [&](auto memory) {
        standard_forward(shape, StandardForward{rows(q), rows(k), rows(v), rows(out), scores}, 1, memory);
    });
    const std::vector<float> standard_out = out;
    expect_counted(Algorithm::standard, Direction::backward, [&](auto memory) {
        standard_backward(
            shape,
            StandardBackward{rows(q), rows(k), rows(v), scores, rows(dout), rows(dq), rows(dk), rows(dv), gradients}, 1,
            memory);
    });
    const std::vector<float> standard_dk = dk;
    const auto expect_near = [&](const std::vector<float>& a, const std::vector<float>& b) {
        for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], 1e-5f);
    };
    expect_counted(Algorithm::flash1, Direction::forward, [&](auto memory) {
        flash1_forward(Flash1Forward{rows(q), rows(k), rows(v), rows(out), vector(l), vector(m)}, mask, tile,
                       shape.scale, memory);
    });
    expect_near(out, standard_out);
    expect_counted(Algorithm::flash1, Direction::backward, [&](auto memory) {
        flash1_backward(Flash1Backward{rows(q), rows(k), rows(v), rows(out), rows(dout), vector(l), vector(m), rows(dq),
                                       rows(dk), rows(dv)},
                        mask, tile, shape.scale, memory);
    });
    expect_near(dk, standard_dk);
    expect_counted(Algorithm::flash2, Direction::forward, [&](auto memory) {
        flash2_forward(Flash2Forward{rows(q), rows(k), rows(v), rows(out), vector(L)}, mask, tile, shape.scale, 0, N,
                       memory);
    });
    expect_near(out, standard_out);
    expect_counted(Algorithm::flash2, Direction::backward, [&](auto memory) {
        flash2_backward(Flash2Backward{rows(q), rows(k), rows(v), rows(out), rows(dout), vector(L), rows(dq), rows(dk),
                                       rows(dv), vector(D)},
                        mask, tile, shape.scale, memory);
    });
    expect_near(dk, standard_dk);
}

}  // namespace
}  // namespace flashtile::baselines
