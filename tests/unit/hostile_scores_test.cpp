// hostile_scores_test.cpp: scores that an online softmax could get wrong: a late score far above all before it, scores
// that grow slowly from block to block, and rows of minus infinity. Expected values are closed forms.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::ProblemData;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kQueries = 40;

// One head whose q and k are zero until a test sets values. Only columns 0 and 1 make scores.
struct Scores {
    Scores(dtype type, device where, std::int64_t keys, std::int64_t head_dim)
        : data(problem(type, keys, head_dim), where), d(head_dim) {
        for (auto* t : {&data.q, &data.k, &data.v, &data.dout})
            for (std::size_t n = 0; n < t->size(); ++n) t->set(n, 0.0);
    }

    static Case problem(dtype type, std::int64_t keys, std::int64_t head_dim) {
        Case c;
        c.type = type;
        c.seqlen_q = kQueries;
        c.seqlen_k = keys;
        c.head_dim = c.head_dim_v = head_dim;
        c.scale = 0.125f;
        c.poison_unseen = false;
        return c;
    }

    std::size_t at(std::int64_t row, std::int64_t col) const { return static_cast<std::size_t>(row * d + col); }

    ProblemData data;
    std::int64_t d;
};

// The error of a result that is rounded once to its type; in fp32 that of scores in the thousands, as rounded there.
double rounding(dtype type) {
    return type == fp32 ? 2e-4 : (type == fp16 ? 1e-3 : 8e-3);
}

class HostileScores : public OnTarget {};

TEST_P(HostileScores, ALateKeyFarAboveTheRest) {
    each_type([](dtype type) {
        for (const std::int64_t d : {64, 128}) {
            constexpr std::int64_t keys = 1500, late = 1401;
            Scores s(type, where(), keys, d);
            for (std::int64_t i = 0; i < kQueries; i += 2) s.data.q.set(s.at(i, 0), 256.0);  // others see all alike
            s.data.k.set(s.at(late, 0), 320.0);                                              // score 10240
            for (std::int64_t j = 0; j < keys; ++j) s.data.v.set(s.at(j, 3), j == late ? -5.0 : 2.0);
            s.data.forward(s.data.options(which()));
            for (std::int64_t i = 0; i < kQueries; ++i) {
                const bool sees_it = i % 2 == 0;
                const double mean = (2.0 * (keys - 1) - 5.0) / keys;
                EXPECT_NEAR(s.data.out.get(s.at(i, 3)), sees_it ? -5.0 : mean, 2 * rounding(type));
                EXPECT_NEAR(s.data.lse.get(static_cast<std::size_t>(i)), sees_it ? 10240.0 : std::log(keys),
                            sees_it ? 2e-3 : 1e-5);
            }
        }
    });
}

// Every key's score lies `growth` above the one before: over 16 blocks each maximum is a new one.
TEST_P(HostileScores, SlowGrowthOverManyBlocks) {
    each_type([](dtype type) {
        for (const double growth : {1.0, 0.0625})
            for (const std::int64_t d : {64, 128}) {
                constexpr std::int64_t keys = 2048;
                Scores s(type, where(), keys, d);
                for (std::int64_t i = 0; i < kQueries; ++i) {
                    s.data.q.set(s.at(i, 0), 8.0 * growth * 64.0);
                    s.data.q.set(s.at(i, 1), 8.0 * growth);
                    s.data.dout.set(s.at(i, 3), 1.0);
                }
                for (std::int64_t j = 0; j < keys; ++j) {
                    s.data.k.set(s.at(j, 0), static_cast<double>(j / 64));
                    s.data.k.set(s.at(j, 1), static_cast<double>(j % 64));
                    s.data.v.set(s.at(j, 3), static_cast<double>(j % 2));
                }
                s.data.forward(s.data.options(which()));
                s.data.backward(s.data.options(which()));
                const double fall = std::exp(-growth);
                for (std::int64_t i = 0; i < kQueries; ++i) {
                    EXPECT_NEAR(s.data.out.get(s.at(i, 3)), 1.0 / (1.0 + fall), rounding(type));
                    EXPECT_NEAR(s.data.lse.get(static_cast<std::size_t>(i)), growth * (keys - 1) - std::log(1.0 - fall),
                                1e-3);
                }
                for (std::int64_t j = 0; j < keys; ++j) {
                    const double p = std::exp(growth * static_cast<double>(j - keys + 1)) * (1.0 - fall);
                    // P may be rounded to the inputs' type, of which fp16 has no number under 2^-24
                    const double least = 1e-6 + (type == fp16 ? kQueries * 0x1p-25 : 0.0);
                    EXPECT_NEAR(s.data.dv.get(s.at(j, 3)), kQueries * p, kQueries * p * 2 * rounding(type) + least)
                        << "key " << j;
                }
            }
    });
}

// Near the end of the range, and a late score that outweighs all others: no sum on the way may be larger than the
// result.
TEST_P(HostileScores, LargeValuesUnderALateScore) {
    each_type([](dtype type) {
        const double large = type == fp16 ? 32768.0 : std::ldexp(1.0, 100);
        for (const std::int64_t d : {64, 128}) {
            constexpr std::int64_t keys = 1500;
            Scores s(type, where(), keys, d);
            for (std::int64_t i = 0; i < kQueries; i += 2) s.data.q.set(s.at(i, 0), 8.0);
            for (std::int64_t i = 0; i < kQueries; i += 4) s.data.q.set(s.at(i, 1), 8.0);
            s.data.k.set(s.at(701, 0), 48.0);    // for every second query: e^48, 2^69
            s.data.k.set(s.at(1401, 1), 128.0);  // for every fourth
            for (std::int64_t j = 0; j < keys; ++j)
                s.data.v.set(s.at(j, 3), large / (j == 701 ? 1 : j == 1401 ? 2 : 4));
            s.data.forward(s.data.options(which()));
            for (std::int64_t i = 0; i < kQueries; ++i) {
                const double mean = ((keys - 2) / 4.0 + 1.5) / keys;
                const double expected = i % 4 == 0 ? 0.5 : i % 2 == 0 ? 1.0 : mean;
                EXPECT_NEAR(s.data.out.get(s.at(i, 3)) / large, expected, rounding(type)) << "query " << i;
            }
        }
    });
}

TEST_P(HostileScores, RowsOfMinusInfinity) {
    each_type([](dtype type) {
        constexpr std::int64_t keys = 700;
        for (const std::int64_t hidden : {std::int64_t{600}, keys}) {
            Scores s(type, where(), keys, 64);
            for (std::int64_t i = 0; i < kQueries; ++i) s.data.q.set(s.at(i, 0), 1.0);
            for (std::int64_t j = 0; j < keys; ++j) {
                if (j < hidden) s.data.k.set(s.at(j, 0), -kInfinity);
                s.data.v.set(s.at(j, 3), j < hidden ? 100.0 : static_cast<double>(j % 2));
            }
            s.data.forward(s.data.options(which()));
            for (std::int64_t i = 0; i < kQueries; ++i) {
                const double lse = s.data.lse.get(static_cast<std::size_t>(i));
                if (hidden < keys) {
                    EXPECT_EQ(s.data.out.get(s.at(i, 3)), 0.5);
                    EXPECT_NEAR(lse, std::log(100.0), 1e-5);
                } else {
                    EXPECT_EQ(s.data.out.get(s.at(i, 3)), 0.0);
                    EXPECT_EQ(lse, -kInfinity);
                }
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(, HostileScores, testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
