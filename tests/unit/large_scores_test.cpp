// large_scores_test.cpp: fp32 gradients of scores in the tens to thousands, which few dimensions make. Standard
// attention rounds a score once and means the same score in forward and in backward, so that where a row belongs to one
// key P is 1 and what that leaves for the others cancels. Units of log2, or one fused operation on one of the two ways,
// lose that: errors were up to 25 times standard attention's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "oracle/tolerance.h"
#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::ProblemData;

class LargeScores : public OnTarget {};

// Over several problems, as in one standard attention may be lucky.
struct Errors {
    double max = 0.0, squares = 0.0;

    void add(const std::vector<double>& values, const std::vector<double>& reference) {
        const oracle::Error error = oracle::error_of(values, reference);
        max = std::max(max, error.max);
        squares += error.rms * error.rms;
    }
};

TEST_P(LargeScores, GradientsAsExactAsStandardAttention) {
    for (const std::int64_t d : {2, 8, 32})
        for (const double magnitude : {6.0, 20.0}) {  // scores up to some 200 or 2000
            // Standard attention's errors are the larger of both ways in which processors sum q.k, not fused and fused:
            // the largest error is that of one row whose two best scores happen to be neighbours.
            Errors ours[3], peers[2][3];
            for (std::uint64_t seed = 1; seed <= 4; ++seed) {
                Case c;
                c.heads = c.kv_heads = 4;
                c.seqlen_q = c.seqlen_k = 96;
                c.head_dim = c.head_dim_v = d;
                c.magnitude_qk = magnitude;
                c.data_seed = seed;
                ProblemData data(c);
                const auto exact = oracle::exact_attention(data.reference, oracle::Pass::forward_and_backward);
                const auto add = [&exact](Errors(&errors)[3], const auto& gradients) {
                    errors[0].add(gradients.dq, exact.dq);
                    errors[1].add(gradients.dk, exact.dk);
                    errors[2].add(gradients.dv, exact.dv);
                };
                add(ours, run(data, data.options(which())));
                for (const bool fused : {false, true})
                    add(peers[fused], oracle::standard_attention(data.reference, oracle::Precision::fp32,
                                                                 oracle::Pass::forward_and_backward, fused));
            }
            for (int n = 0; n < 3; ++n) {
                SCOPED_TRACE(std::string("d") + "qkv"[n] + ", head_dim " + std::to_string(d) + ", magnitude " +
                             std::to_string(magnitude));
                const auto& [plain, fused] = std::tie(peers[0][n], peers[1][n]);
                EXPECT_LE(std::sqrt(ours[n].squares), 1.25 * std::sqrt(std::max(plain.squares, fused.squares)));
                EXPECT_LE(ours[n].max, 2.0 * std::max(plain.max, fused.max));
            }
        }
}

INSTANTIATE_TEST_SUITE_P(, LargeScores, testing::ValuesIn(cpu_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
