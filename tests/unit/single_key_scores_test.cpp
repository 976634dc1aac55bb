// single_key_scores_test.cpp: a query that sees one key gets its value bit for bit whatever the score, on the CPU: its
// P is 1 and nothing else is in the sum. A window, a mask or a bias of minus infinity leaves one key to the query, or
// there is only one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::ProblemData;

enum class Way { window, causal_mask, bias, one_key };
constexpr Way kWays[] = {Way::window, Way::causal_mask, Way::bias, Way::one_key};
constexpr std::int64_t kKeys = 140;  // more than a block

class SingleKeyScores : public OnTarget {};

Case problem(dtype type, Way way, std::int64_t head_dim, double magnitude) {
    Case c;
    c.type = type;
    c.heads = 2;
    c.seqlen_q = kKeys;
    c.seqlen_k = way == Way::one_key ? 1 : kKeys;
    c.head_dim = c.head_dim_v = head_dim;
    c.magnitude_qk = magnitude;
    c.poison_unseen = false;
    c.batch_invariant = true;  // one key on tiles too
    if (way == Way::window) c.window = {0, 0};
    if (way == Way::causal_mask) {
        c.mask.present = true;
        c.causal = bottom_right;
    }
    if (way == Way::bias) {
        c.bias.present = true;
        c.bias_in_fp32 = true;
    }
    return c;
}

// Query i sees key i, or the only one.
void hide_others(ProblemData& data, Way way) {
    const std::int64_t heads = data.problem.heads;
    if (way != Way::causal_mask && way != Way::bias) return;
    for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < kKeys; ++i)
            for (std::int64_t j = 0; j < kKeys; ++j) {
                const auto n = static_cast<std::size_t>((h * kKeys + i) * kKeys + j);
                if (way == Way::causal_mask) data.mask.set(n, i <= j ? 1.0 : 0.0);
                if (way == Way::bias) data.bias.set(n, i == j ? 0.5 : -std::numeric_limits<double>::infinity());
            }
}

TEST_P(SingleKeyScores, OutIsItsValue) {
    each_type([](dtype type) {
        for (const Way way : kWays)
            for (const std::int64_t d : {40, 64})
                for (const double magnitude : {0.1, 1.0, 6.0, 60.0, 150.0}) {
                    // Tiles round P to bf16 and m to units of log2: scores past 2e4 leave an error that shows.
                    if (magnitude > 60.0 && type == bf16 && which() == isa::amx) continue;
                    SCOPED_TRACE("way " + std::to_string(static_cast<int>(way)) + " d " + std::to_string(d) +
                                 " magnitude " + std::to_string(magnitude));
                    ProblemData data(problem(type, way, d, magnitude), where());
                    hide_others(data, way);
                    data.forward(data.options(which()));
                    const Case& c = data.problem;
                    std::int64_t wrong = 0;
                    for (std::int64_t i = 0; i < c.seqlen_q; ++i)
                        for (std::int64_t h = 0; h < c.heads; ++h)
                            for (std::int64_t col = 0; col < d; ++col) {
                                const std::int64_t j = way == Way::one_key ? 0 : i;
                                const auto n = static_cast<std::size_t>((i * c.heads + h) * d + col);
                                wrong += data.out.get(n) != data.v.get(static_cast<std::size_t>(j * d + col));
                            }
                    EXPECT_EQ(wrong, 0) << "of " << c.seqlen_q * c.heads * d;
                }
    });
}

INSTANTIATE_TEST_SUITE_P(, SingleKeyScores, testing::ValuesIn(cpu_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
