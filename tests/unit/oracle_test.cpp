// oracle_test.cpp: the oracle against what can be known without it: finite differences, a softmax by hand, published
// vectors, and the formats' own definitions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "conformance/case_list.h"
#include "conformance/problem_data.h"
#include "oracle/attention.h"
#include "oracle/philox.h"
#include "oracle/precision.h"
#include "oracle/tolerance.h"

namespace flashtile::oracle {
namespace {

TEST(Oracle, PhiloxKnownAnswers) {  // Random123's kat_vectors, philox4x32 with 7 rounds
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}, 7), (Counter{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
    constexpr std::uint32_t ones = 0xffffffff;
    EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}, 7),
              (Counter{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
    EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, 7),
              (Counter{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Oracle, Fp16RoundsToNearestEven) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {  // each value is its own nearest
        const float value = from_fp16_bits(static_cast<std::uint16_t>(bits));
        if (!std::isnan(value)) {
            ASSERT_EQ(to_fp16_bits(value), bits);
        } else {
            ASSERT_TRUE(std::isnan(from_fp16_bits(to_fp16_bits(value))));
        }
    }
    for (std::uint16_t low = 0; low < 0x7BFF; ++low) {  // halfway between neighbours, and a hair to either side
        const float half = (from_fp16_bits(low) + from_fp16_bits(static_cast<std::uint16_t>(low + 1))) / 2;
        ASSERT_EQ(to_fp16_bits(half), low % 2 == 0 ? low : low + 1);
        ASSERT_EQ(to_fp16_bits(std::nextafter(half, 0.0f)), low);
        ASSERT_EQ(to_fp16_bits(std::nextafter(half, 1e9f)), low + 1);
    }
    EXPECT_EQ(to_fp16_bits(65519.0f), 0x7BFF);
    EXPECT_EQ(to_fp16_bits(65520.0f), 0x7C00);
    EXPECT_EQ(to_fp16_bits(-1e30f), 0xFC00);
}

TEST(Oracle, Bf16RoundsToNearestEven) {
    for (std::uint32_t low = 0; low < 0x7F7F; ++low) {
        const float half = std::bit_cast<float>(low << 16 | 0x8000u);
        ASSERT_EQ(to_bf16_bits(half), low % 2 == 0 ? low : low + 1);
        ASSERT_EQ(to_bf16_bits(std::bit_cast<float>(low << 16 | 0x7FFFu)), low);
        ASSERT_EQ(to_bf16_bits(std::bit_cast<float>(low << 16 | 0x8001u)), low + 1);
    }
    EXPECT_EQ(to_bf16_bits(INFINITY), 0x7F80);
    EXPECT_TRUE(std::isnan(from_bf16_bits(to_bf16_bits(std::nanf("")))));
}

TEST(Oracle, TwoKeysByHand) {
    Problem p;
    p.sequences = {{0, 1, 0, 2}};
    p.rows_q = 1;
    p.rows_k = 2;
    p.q = {2.0};
    p.k = {std::log(3.0) / 2.0, 0.0};  // scores log 3 and 0: probabilities 3/4 and 1/4
    p.v = {8.0, 4.0};
    p.dout = {1.0};
    const Result r = exact_attention(p, Pass::forward_and_backward);
    EXPECT_NEAR(r.out[0], 7.0, 1e-14);
    EXPECT_NEAR(r.lse[0], std::log(4.0), 1e-14);
    EXPECT_NEAR(r.dv[0], 0.75, 1e-14);
    // dS = P (v - out): 3/4 * 1 and 1/4 * -3
    EXPECT_NEAR(r.dk[0], 0.75 * 2.0, 1e-14);
    EXPECT_NEAR(r.dk[1], -0.75 * 2.0, 1e-14);
    EXPECT_NEAR(r.dq[0], 0.75 * std::log(3.0) / 2.0, 1e-14);
}

TEST(Oracle, QueriesThatSeeNothing) {
    Problem p;
    p.sequences = {{0, 2, 0, 1}};  // causal, bottom-right: query 0 sees nothing
    p.rows_q = 2;
    p.rows_k = 1;
    p.causal = true;
    p.q = {1.0, 1.0};
    p.k = {1.0};
    p.v = {5.0};
    p.dout = {1.0, 1.0};
    const Result r = exact_attention(p, Pass::forward_and_backward);
    EXPECT_EQ(r.out, (std::vector<double>{0.0, 5.0}));
    EXPECT_EQ(r.lse[0], -INFINITY);
    EXPECT_EQ(r.dq[0], 0.0);
    EXPECT_EQ(r.dv[0], 1.0);
}

// What backward is the gradient of.
double loss(const Problem& p) {
    const Result r = exact_attention(p, Pass::forward);
    double sum = 0.0;
    for (std::size_t n = 0; n < r.out.size(); ++n) sum += r.out[n] * p.dout[n];
    for (std::size_t n = 0; n < p.dlse.size(); ++n)
        if (std::isfinite(r.lse[n])) sum += r.lse[n] * p.dlse[n];
    return sum;
}

void expect_gradient(Problem& p, std::vector<double>& input, const std::vector<double>& gradient, const char* name) {
    constexpr double step = 1e-4;
    const std::size_t stride = std::max<std::size_t>(1, input.size() / 11);
    for (std::size_t n = 0; n < input.size(); n += stride) {
        const double kept = input[n];
        input[n] = kept + step;
        const double above = loss(p);
        input[n] = kept - step;
        const double below = loss(p);
        input[n] = kept;
        EXPECT_NEAR((above - below) / (2 * step), gradient[n], 1e-6 * (1.0 + std::abs(gradient[n])))
            << name << "[" << n << "]";
    }
}

TEST(Oracle, BackwardIsTheDerivativeOfForward) {
    for (const char* name :
         {"options/causal+softcap", "options/alibi_batch+bias", "options/bias_rows+dlse", "options/bias_fp32+dropout",
          "options/dropout+packed", "options/mask+gqa", "options/seqused+dv", "options/window+causal_top_left",
          "options/window+align_top_left", "options/scale+bias_keys", "empty_rows/causal_0"}) {
        // Names hold the pair in the order of the list; either is meant.
        const conformance::Case* found = conformance::find_case(name);
        if (found == nullptr) {
            const std::string text = name;
            const std::size_t slash = text.find('/') + 1, plus = text.find('+');
            found = conformance::find_case(text.substr(0, slash) + text.substr(plus + 1) + "+" +
                                           text.substr(slash, plus - slash));
        }
        ASSERT_NE(found, nullptr) << name;
        SCOPED_TRACE(name);
        conformance::Case small = *found;
        small.seqlen_q = std::min<std::int64_t>(small.seqlen_q, 17);
        small.seqlen_k = std::min<std::int64_t>(small.seqlen_k, 23);
        small.head_dim = 5;
        for (auto& used : small.used_k) used = std::min(used, small.seqlen_k);
        conformance::ProblemData data(small);
        Problem& p = data.reference;
        const Result r = exact_attention(p, Pass::forward_and_backward);
        expect_gradient(p, p.q, r.dq, "dq");
        expect_gradient(p, p.k, r.dk, "dk");
        expect_gradient(p, p.v, r.dv, "dv");
        if (p.bias.present()) expect_gradient(p, p.bias.values, r.dbias, "dbias");
    }
}

TEST(Oracle, AnExplicitKeepMaskStandsInForTheDraws) {
    const conformance::Case* found = conformance::find_case("options/dropout+dropout");
    ASSERT_NE(found, nullptr);
    conformance::ProblemData data(*found);
    Problem& p = data.reference;
    const Result drawn = exact_attention(p, Pass::forward);
    p.explicit_keep.shape = {found->batch, found->heads, found->seqlen_q, found->seqlen_k};
    for (std::int64_t b = 0; b < found->batch; ++b)
        for (std::int64_t h = 0; h < found->heads; ++h)
            for (std::int64_t i = 0; i < found->seqlen_q; ++i)
                for (std::int64_t j = 0; j < found->seqlen_k; ++j)
                    p.explicit_keep.values.push_back(dropout_draw(p.seed, p.offset, b, h, i, j) >=
                                                     dropout_threshold(p.dropout));
    p.seed = 0;
    EXPECT_EQ(exact_attention(p, Pass::forward).out, drawn.out);
}

// Of as many keys as there may be, all of score 0.
TEST(Oracle, LseMayBeRoundedToFp32) {
    for (double keys = 1.0; keys < 0x1p40; keys *= 2.0) {
        const double lse = std::log(keys);
        EXPECT_GE(allowed_lse_error(0.0, lse), ulp_at(lse, Precision::fp32)) << keys << " keys";
    }
}

TEST(Oracle, ErrorsSeeWhatIsNotFinite) {
    EXPECT_TRUE(std::isnan(error_of(std::vector{NAN, 0.0}, std::vector{0.0, 0.0}).max));
    EXPECT_TRUE(std::isinf(error_of(std::vector{0.0}, std::vector{-HUGE_VAL}).max));
    EXPECT_EQ(error_of(std::vector{-HUGE_VAL}, std::vector{-HUGE_VAL}).max, 0.0);
    EXPECT_EQ(error_of(std::vector{1.0, 3.0}, std::vector{1.0, 2.0}).max, 1.0);
}

}  // namespace
}  // namespace flashtile::oracle
