// single_key_test.cpp: a query that sees one key alone, or one key far above all others, gets that key's v, bit for
// bit, as standard attention gives it: the row's greatest P is 1, which no rounding changes, and so is l. (flash-attn's
// own tests ask for it.)
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::Guard;
using conformance::ProblemData;

class SingleKey : public OnTarget {
protected:
    // Runs the case on every type, head dimension and alignment. `prepare` changes what was drawn; `key_of` says which
    // key's v query i is to have, or -1: it is not looked at.
    static void expect_value(
        Case c, const std::function<void(ProblemData&)>& prepare,
        const std::function<std::int64_t(std::int64_t)>& key_of,
        const std::function<bool(dtype)>& takes = [](dtype) { return true; }) {
        for (const std::int64_t d : {64, 128, 256})
            for (const Guard guard : {Guard::nan_bands, Guard::page_before})
                each_type([&](dtype type) {
                    const bool on_cpu = where().type == FLASHTILE_CPU;
                    // alignment decides between a GPU's kernels, as widths do
                    if (!takes(type) || (on_cpu && (d == 128 || guard != Guard::nan_bands))) return;

                    c.type = type;
                    c.heads = 2;
                    c.head_dim = c.head_dim_v = d;
                    c.guard = guard;
                    c.magnitude_qk = 1.7;  // so that scores are no whole numbers of any unit
                    c.poison_unseen = false;
                    ProblemData data(c, where());
                    prepare(data);
                    poison_outputs(data);
                    data.forward(data.options(which()));
                    std::int64_t wrong = 0, seen = 0;
                    for (std::int64_t i = 0; i < c.seqlen_q; ++i) {
                        const std::int64_t j = key_of(i);
                        if (j < 0) continue;
                        for (std::int64_t n = 0; n < c.heads * d; ++n, ++seen) {
                            const auto at = [&](std::int64_t row) {
                                return static_cast<std::size_t>(row * c.heads * d + n);
                            };
                            const double v = data.v.get(at(j));
                            wrong += data.out.get(at(i)) != v;
                        }
                    }
                    EXPECT_GT(seen, 0);
                    EXPECT_EQ(wrong, 0) << "of " << seen << " values, d = " << d << ", guard "
                                        << static_cast<int>(guard);
                });
    }

    static Case keys(std::int64_t seqlen_q, std::int64_t seqlen_k) {
        Case c;
        c.seqlen_q = seqlen_q;
        c.seqlen_k = seqlen_k;
        c.kv_heads = 2;
        return c;
    }
    static void as_drawn(ProblemData&) {}
};

TEST_P(SingleKey, IsTheOnlyOne) {
    for (const std::int64_t queries : {1, 70}) expect_value(keys(queries, 1), as_drawn, [](std::int64_t) { return 0; });
}

TEST_P(SingleKey, IsAllThatACausalMaskShows) {
    Case c = keys(300, 300);
    c.causal = true;
    expect_value(c, as_drawn, [](std::int64_t i) { return i == 0 ? 0 : -1; });
}

TEST_P(SingleKey, IsAllThatAWindowShows) {
    Case c = keys(140, 140);
    c.window = {0, 0};
    expect_value(c, as_drawn, [](std::int64_t i) { return i; });
}

TEST_P(SingleKey, IsAllThatAMaskShows) {
    Case c = keys(70, 300);
    c.mask = {.present = true, .spans = {false, false, true, true}};
    const auto key = [](std::int64_t i) { return i * 37 % 300; };
    expect_value(
        c,
        [&](ProblemData& data) {
            for (std::int64_t i = 0; i < 70; ++i)
                for (std::int64_t j = 0; j < 300; ++j)
                    data.mask.set(static_cast<std::size_t>(i * 300 + j), j == key(i) ? 1.0 : 0.0);
        },
        key);
}

TEST_P(SingleKey, IsAllThatABiasShows) {
    Case c = keys(70, 300);
    c.bias = {.present = true, .spans = {false, false, true, true}};
    const auto key = [](std::int64_t i) { return i * 37 % 300; };
    expect_value(
        c,
        [&](ProblemData& data) {
            for (std::int64_t i = 0; i < 70; ++i)
                for (std::int64_t j = 0; j < 300; ++j)
                    data.bias.set(static_cast<std::size_t>(i * 300 + j),
                                  j == key(i) ? 0.3 : -std::numeric_limits<double>::infinity());
        },
        key);
}

TEST_P(SingleKey, IsAllThatIsUsed) {
    Case c = keys(3, 900);
    c.used_k = {1};
    expect_value(c, as_drawn, [](std::int64_t) { return 0; });
}

// Above all others, which have v = 0, in a block that comes after a row has a maximum: by e^16, which a maximum of that
// block makes up for; by e^40 and by e^200, which overflows before it does. In fp32 the others would show.
TEST_P(SingleKey, IsFarAboveTheRest) {
    if (which() == isa::amx) GTEST_SKIP() << "m is not made up for on tiles: docs/algorithm.md";
    constexpr std::int64_t queries = 40, keys_in_all = 600;
    for (const auto& [peak, score] : {std::pair(std::int64_t{3}, 16.0), std::pair(std::int64_t{300}, 16.0),
                                      std::pair(std::int64_t{3}, 40.0), std::pair(std::int64_t{3}, 200.0)})
        expect_value(
            keys(queries, keys_in_all),
            [peak = peak, score = score](ProblemData& data) {
                const std::int64_t width = data.problem.heads * data.problem.head_dim, d = data.problem.head_dim;
                for (std::size_t n = 0; n < data.k.size(); ++n) data.k.set(n, 0.0);
                for (std::int64_t j = 0; j < keys_in_all; ++j)
                    for (std::int64_t n = 0; n < width; ++n)
                        if (j != peak) data.v.set(static_cast<std::size_t>(j * width + n), 0.0);
                for (std::int64_t h = 0; h < data.problem.heads; ++h) {
                    data.k.set(static_cast<std::size_t>(peak * width + h * d), 1.0);
                    for (std::int64_t i = 0; i < queries; ++i)
                        data.q.set(static_cast<std::size_t>(i * width + h * d), score * std::sqrt(d));
                }
            },
            [peak = peak](std::int64_t) { return peak; }, [](dtype type) { return type != fp32; });
}

INSTANTIATE_TEST_SUITE_P(, SingleKey, testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
