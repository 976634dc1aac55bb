// range_test.cpp: values at both ends of a type's range, as docs/semantics.md states them. Expected values are closed
// forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracle/tolerance.h"
#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::ProblemData;

constexpr std::int64_t kQueries = 40, kWidth = 64;

Case problem(dtype type, std::int64_t keys) {
    Case c;
    c.type = type;
    c.seqlen_q = kQueries;
    c.seqlen_k = keys;
    c.head_dim = c.head_dim_v = kWidth;
    c.scale = 1.0f;
    c.poison_unseen = false;
    return c;
}

void fill(conformance::GuardedTensor& t, double value) {
    for (std::size_t n = 0; n < t.size(); ++n) t.set(n, value);
}

class Range : public OnTarget {};
class RangeOnCpu : public Range {};

// The largest values allowed, with scores that are all equal, and with scores that grow from key to key, where a
// lagging maximum lags as far as it may.
TEST_P(Range, LargestValues) {
    for (const dtype type : {fp32, bf16})
        for (const double growth : {0.0, 0.01, 1.0})
            for (const std::int64_t keys : {2, 700}) {
                SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(type)) + ", growth " + std::to_string(growth) +
                             ", " + std::to_string(keys) + " keys");
                ProblemData data(problem(type, keys), where());
                fill(data.q, 0.0);
                fill(data.k, 0.0);
                fill(data.v, oracle::largest_value(keys) * 0.99);
                for (std::int64_t i = 0; i < kQueries; ++i)
                    for (const std::int64_t col : {0, 1})
                        data.q.set(static_cast<std::size_t>(i * kWidth + col), growth);
                for (std::int64_t j = 0; j < keys; ++j) {
                    data.k.set(static_cast<std::size_t>(j * kWidth), static_cast<double>(j / 64 * 64));
                    data.k.set(static_cast<std::size_t>(j * kWidth + 1), static_cast<double>(j % 64));
                }
                data.forward(data.options(which()));
                const double value = data.v.get(0), rounding = type == fp32 ? 1e-5 : 8e-3;
                for (std::size_t n = 0; n < data.out.size(); ++n)
                    ASSERT_NEAR(data.out.get(n) / value, 1.0, rounding) << n;
            }
}

// Such a scale times log2(e) is infinite, and infinity times a score of 0 is NaN.
TEST_P(Range, LargestScale) {
    each_type([](dtype type) {
        for (const float scale : {3.4e38f, -3.4e38f}) {
            Case c = problem(type, 64);
            c.scale = scale;
            ProblemData data(c, where());
            fill(data.q, 0.0);
            fill(data.k, 0.0);
            fill(data.v, 1.0);
            const Outputs r = run(data, data.options(which()));
            EXPECT_EQ(r.out, std::vector<double>(r.out.size(), 1.0));
            EXPECT_EQ(r.dq, std::vector<double>(r.dq.size(), 0.0));
            EXPECT_EQ(r.dk, std::vector<double>(r.dk.size(), 0.0));
        }
    });
}

// Stated for the CPU alone: sums of bf16 products that it has an instruction for take subnormal numbers for 0.
TEST_P(RangeOnCpu, SubnormalValues) {
    for (const dtype type : {fp32, fp16, bf16})
        for (const std::int64_t keys : {1, 64}) {
            const double tiny = type == fp16 ? 0x1p-24 : std::ldexp(1.0, type == fp32 ? -149 : -133);
            ProblemData data(problem(type, keys), where());
            fill(data.q, 0.0);
            fill(data.k, 0.0);
            fill(data.v, 40.0 * tiny);
            data.forward(data.options(which()));
            const bool flushed =
                type == bf16 && (which() == isa::avx512_bf16 || which() == isa::amx || which() == isa::neon_bf16);
            SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(keys) + " keys");
            for (std::size_t n = 0; n < data.out.size(); ++n)
                if (flushed) {
                    ASSERT_LE(std::abs(data.out.get(n)), 40.0 * tiny) << n;
                } else {
                    ASSERT_NEAR(data.out.get(n) / tiny, 40.0, keys == 1 ? 0.0 : 32.0) << n;
                }
        }
}

INSTANTIATE_TEST_SUITE_P(, Range, testing::ValuesIn(all_targets()), target_name);
INSTANTIATE_TEST_SUITE_P(, RangeOnCpu, testing::ValuesIn(cpu_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
