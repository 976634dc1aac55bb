// baselines_test.cpp: the standard-attention baseline against attention computed in fp64, entry by entry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "baselines/standard_attention.h"

namespace flashtile::baselines {
namespace {

struct Tensors {
    std::vector<float> q, k, v, dout;
    std::vector<float> out, dq, dk, dv;
};

std::vector<float> random_values(std::int64_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    std::ranges::generate(values, [&] { return normal(generator); });
    return values;
}

Tensors random_tensors(const Shape& s) {
    const std::int64_t q_size = s.batch * s.seqlen_q * s.heads * s.head_dim;
    const std::int64_t k_size = s.batch * s.seqlen_k * s.kv_heads * s.head_dim;
    Tensors t{random_values(q_size, 1),
              random_values(k_size, 2),
              random_values(k_size, 3),
              random_values(q_size, 4),
              {},
              {},
              {},
              {}};
    const float poison = std::nanf("");
    t.out.assign(t.q.size(), poison);
    t.dq.assign(t.q.size(), poison);
    t.dk.assign(t.k.size(), poison);
    t.dv.assign(t.v.size(), poison);
    return t;
}

struct Exact {
    std::vector<double> out, dq, dk, dv;
};

// One query at a time, from the formulas of the FlashAttention paper's appendix B.2.
Exact exact(const Shape& s, const Tensors& t) {
    Exact r;
    r.out.assign(t.q.size(), 0.0);
    r.dq.assign(t.q.size(), 0.0);
    r.dk.assign(t.k.size(), 0.0);
    r.dv.assign(t.v.size(), 0.0);
    const std::int64_t d = s.head_dim;
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t h = 0; h < s.heads; ++h)
            for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
                const auto q_row = static_cast<std::size_t>(((b * s.seqlen_q + i) * s.heads + h) * d);
                const auto k_row = [&](std::int64_t j) {
                    const std::int64_t kv_head = h / (s.heads / s.kv_heads);
                    return static_cast<std::size_t>(((b * s.seqlen_k + j) * s.kv_heads + kv_head) * d);
                };
                const auto dot = [&](const std::vector<float>& x, std::size_t at, const std::vector<float>& y,
                                     std::size_t where) {
                    double sum = 0.0;
                    for (std::size_t c = 0; c < static_cast<std::size_t>(d); ++c)
                        sum += double{x[at + c]} * y[where + c];
                    return sum;
                };
                const std::int64_t visible =
                    s.causal ? std::clamp<std::int64_t>(i + s.seqlen_k - s.seqlen_q + 1, 0, s.seqlen_k) : s.seqlen_k;
                std::vector<double> p;
                double l = 0.0;
                for (std::int64_t j = 0; j < visible; ++j) {
                    p.push_back(std::exp(s.scale * dot(t.q, q_row, t.k, k_row(j))));
                    l += p.back();
                }
                double D = 0.0;
                for (std::int64_t j = 0; j < visible; ++j) {
                    p[static_cast<std::size_t>(j)] /= l;
                    D += p[static_cast<std::size_t>(j)] * dot(t.dout, q_row, t.v, k_row(j));
                }
                for (std::int64_t j = 0; j < visible; ++j) {
                    const double P = p[static_cast<std::size_t>(j)];
                    const double dS = s.scale * P * (dot(t.dout, q_row, t.v, k_row(j)) - D);
                    for (std::size_t c = 0; c < static_cast<std::size_t>(d); ++c) {
                        r.out[q_row + c] += P * t.v[k_row(j) + c];
                        r.dv[k_row(j) + c] += P * t.dout[q_row + c];
                        r.dq[q_row + c] += dS * t.k[k_row(j) + c];
                        r.dk[k_row(j) + c] += dS * t.q[q_row + c];
                    }
                }
            }
    return r;
}

void expect_near(const std::vector<float>& values, const std::vector<double>& reference, const char* name) {
    ASSERT_EQ(values.size(), reference.size());
    for (std::size_t n = 0; n < values.size(); ++n)
        ASSERT_NEAR(values[n], reference[n], 5e-6 * (1.0 + std::abs(reference[n]))) << name << " at " << n;
}

class StandardAttention : public testing::TestWithParam<Shape> {};

TEST_P(StandardAttention, MatchesExactAttention) {
    const Shape& shape = GetParam();
    Tensors t = random_tensors(shape);
    const Exact reference = exact(shape, t);
    for (const int threads : {1, 2, 3})
        for (const bool keep_P : {true, false}) {
            std::vector<float> P(
                keep_P ? static_cast<std::size_t>(shape.batch * shape.heads * shape.seqlen_q * shape.seqlen_k) : 0);
            float* P_data = keep_P ? P.data() : nullptr;
            standard_forward(shape, t.q.data(), t.k.data(), t.v.data(), t.out.data(), P_data, threads);
            standard_backward(shape, t.q.data(), t.k.data(), t.v.data(), P_data, t.dout.data(), t.dq.data(),
                              t.dk.data(), t.dv.data(), threads);
            expect_near(t.out, reference.out, "out");
            expect_near(t.dq, reference.dq, "dq");
            expect_near(t.dk, reference.dk, "dk");
            expect_near(t.dv, reference.dv, "dv");
        }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StandardAttention,
    testing::Values(
        Shape{.batch = 2, .seqlen_q = 37, .seqlen_k = 37, .heads = 3, .kv_heads = 3, .head_dim = 16, .scale = 0.25f},
        Shape{.batch = 1,
              .seqlen_q = 65,
              .seqlen_k = 65,
              .heads = 2,
              .kv_heads = 2,
              .head_dim = 24,
              .causal = true,
              .scale = 0.2f},
        Shape{.batch = 2,
              .seqlen_q = 19,
              .seqlen_k = 40,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 8,
              .causal = true,
              .scale = 0.35f},
        Shape{.batch = 1,
              .seqlen_q = 40,
              .seqlen_k = 19,
              .heads = 4,
              .kv_heads = 1,
              .head_dim = 8,
              .causal = true,
              .scale = 0.35f},
        Shape{.batch = 1, .seqlen_q = 1, .seqlen_k = 130, .heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1.0f}));

}  // namespace
}  // namespace flashtile::baselines
