// nonfinite_test.cpp: NaN and infinities reach every result that attends to them, and no other.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::GuardedTensor;
using conformance::ProblemData;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Case small(dtype type) {
    Case c;
    c.type = type;
    c.heads = c.kv_heads = 2;
    c.seqlen_q = 70;
    c.seqlen_k = 90;
    c.head_dim = c.head_dim_v = 24;
    c.poison_unseen = false;
    return c;
}

class NonFinite : public OnTarget {};

std::size_t element(const Case& c, std::int64_t row, std::int64_t head, std::int64_t col) {
    return static_cast<std::size_t>((row * c.heads + head) * c.head_dim + col);
}

// Out of head `head`: flags the rows with any value that is not finite.
std::vector<bool> spoilt_rows(const Case& c, const std::vector<double>& out, std::int64_t head) {
    std::vector<bool> result(static_cast<std::size_t>(c.seqlen_q), false);
    for (std::int64_t i = 0; i < c.seqlen_q; ++i)
        for (std::int64_t col = 0; col < c.head_dim_v; ++col)
            if (!std::isfinite(out[element(c, i, head, col)])) result[static_cast<std::size_t>(i)] = true;
    return result;
}

TEST_P(NonFinite, AQuerySpoilsItsOwnRowOnly) {
    each_type([](dtype type) {
        const Case c = small(type);
        ProblemData data(c, where());
        const Outputs clean = run(data, data.options(which()));
        data.q.set(element(c, 33, 1, 5), kNaN);
        const Outputs spoilt = run(data, data.options(which()));
        for (std::int64_t i = 0; i < c.seqlen_q; ++i)
            for (std::int64_t h = 0; h < c.heads; ++h)
                for (std::int64_t col = 0; col < c.head_dim_v; ++col) {
                    const auto n = element(c, i, h, col);
                    if (i == 33 && h == 1) {
                        EXPECT_FALSE(std::isfinite(spoilt.out[n])) << col;
                    } else {
                        ASSERT_EQ(spoilt.out[n], clean.out[n]) << "row " << i << " head " << h;
                    }
                }
    });
}

// Also where the queries of all heads go through the keys together.
TEST_P(NonFinite, AValueIsHiddenFromTheHeadsWhoseMaskHidesIt) {
    each_type([](dtype type) {
        Case c = small(type);
        c.seqlen_q = 1;
        c.seqlen_k = 600;
        c.mask = {.present = true, .spans = {false, true, false, true}};
        c.threads = 1;
        ProblemData data(c, where());
        data.mask.set(5, 1.0);
        data.mask.set(600 + 5, 0.0);
        const Outputs clean = run(data, data.options(which()));
        data.v.set(element(c, 5, 1, 7), kNaN);
        EXPECT_EQ(run(data, data.options(which())).out, clean.out);
    });
}

TEST_P(NonFinite, AnAttendedKeySpoilsEveryRowThatSeesIt) {
    each_type([](dtype type) {
        for (const double value : {kNaN, kInfinity, -kInfinity})
            for (const bool in_v : {false, true}) {
                // Only NaN and infinities in v are sure to show: an infinite key may give scores of minus infinity.
                if (!in_v && std::isinf(value)) continue;
                const Case c = small(type);
                ProblemData data(c, where());
                (in_v ? data.v : data.k).set(element(c, 40, 0, 7), value);
                data.forward(data.options(which()));
                const auto out = data.out.values();
                EXPECT_EQ(spoilt_rows(c, out, 0), std::vector<bool>(static_cast<std::size_t>(c.seqlen_q), true));
                EXPECT_EQ(spoilt_rows(c, out, 1), std::vector<bool>(static_cast<std::size_t>(c.seqlen_q), false));
            }
    });
}

TEST_P(NonFinite, AnInfiniteScoreGivesNoFiniteRow) {
    each_type([](dtype type) {
        const Case c = small(type);
        ProblemData data(c, where());
        for (std::int64_t i = 0; i < c.seqlen_q; ++i) data.q.set(element(c, i, 0, 0), 1.0);
        data.k.set(element(c, 40, 0, 0), kInfinity);
        data.forward(data.options(which()));
        EXPECT_EQ(spoilt_rows(c, data.out.values(), 0), std::vector<bool>(static_cast<std::size_t>(c.seqlen_q), true));
    });
}

// Whatever lies in keys that no query sees, or past seqused, every result's bits stay.
TEST_P(NonFinite, UnseenKeysHaveNoEffect) {
    each_type([](dtype type) {
        for (const int variant : {0, 1, 2, 3}) {
            Case c = small(type);
            if (variant == 0) c.causal = top_left;  // 20 keys past the diagonal
            if (variant == 1) c.used_k = {61};
            if (variant == 2) c.window = {5, 3};
            if (variant == 3) c.mask = {.present = true, .spans = {true, false, false, true}};
            c.with_dlse = variant == 2;
            c.bias.present = variant == 1;
            ProblemData clean(c, where());
            const Outputs expected = run(clean, clean.options(which()));
            c.poison_unseen = true;
            ProblemData poisoned(c, where());
            ASSERT_NE(poisoned.k.values(), clean.k.values()) << "variant " << variant << " hides no key";
            SCOPED_TRACE("variant " + std::to_string(variant));
            expect_same_bits(run(poisoned, poisoned.options(which())), expected);
        }
    });
}

// A mask hides a key whatever the key holds. A bias of minus infinity hides a key whose score is finite. The values of
// a key that either of them hides from every query are never read.
TEST_P(NonFinite, ABiasHidesWhatHasAScore) {
    each_type([](dtype type) {
        for (const double bias : {-kInfinity, static_cast<double>(std::numeric_limits<float>::lowest())})
            for (const bool in_v : {false, true}) {
                Case c = small(type);
                c.bias.present = true;
                c.bias.spans = {false, false, false, true};
                c.bias_in_fp32 = true;
                ProblemData data(c, where());
                for (std::int64_t j = 0; j < c.seqlen_k; ++j)
                    data.bias.set(static_cast<std::size_t>(j), j >= 40 && j < 50 ? bias : 0.0);
                const Outputs clean = run(data, data.options(which()));
                for (std::int64_t j = 40; j < 50; ++j) (in_v ? data.v : data.k).set(element(c, j, 0, 7), kNaN);
                SCOPED_TRACE("bias " + std::to_string(bias) + (in_v ? ", NaN in v" : ", NaN in k"));
                if (in_v) {
                    expect_same_bits(run(data, data.options(which())), clean);
                    continue;
                }
                data.forward(data.options(which()));
                const auto all = std::vector<bool>(static_cast<std::size_t>(c.seqlen_q), true);
                EXPECT_EQ(spoilt_rows(c, data.out.values(), 0), all);
            }
    });
}

TEST_P(NonFinite, EmptyRowsAreZeroAndNeverNaN) {
    each_type([](dtype type) {
        Case c = small(type);
        c.mask.present = true;
        c.mask_density = 0.0;
        c.with_dlse = true;
        ProblemData data(c, where());
        const Outputs r = run(data, data.options(which()));
        for (const auto* values : {&r.out, &r.dq, &r.dk, &r.dv})
            EXPECT_EQ(*values, std::vector<double>(values->size(), 0.0));
        EXPECT_EQ(r.lse, std::vector<double>(r.lse.size(), -kInfinity));
    });
}

INSTANTIATE_TEST_SUITE_P(, NonFinite, testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
