// baselines_test.cpp: every algorithm of src/baselines against the fp64 oracle, within the bounds that the library's
// own results are held to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "baselines/flash2.h"
#include "baselines/rabe_staats.h"
#include "baselines/standard_attention.h"
#include "oracle/attention.h"
#include "oracle/tolerance.h"

namespace flashtile::baselines {
namespace {

struct Case {
    const char* name;
    Shape shape;
    Tile tile{};
    double dropout = 0.0;
    std::vector<std::int64_t> key_lengths{};  // (batch), or empty
    std::vector<std::uint8_t> blocks{};       // (Tr, Tc), or empty

    Masking masking() const {
        return {key_lengths.empty() ? nullptr : key_lengths.data(), blocks.empty() ? nullptr : blocks.data(), dropout,
                7};
    }
    // With no option but causal, which is all that some algorithms have here.
    bool plain() const { return dropout == 0.0 && key_lengths.empty() && blocks.empty(); }
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

const std::vector<Case> cases = {
    {"heads", {2, 37, 37, 3, 3, 16, false, 0.25f}, {16, 16}},
    {"causal, d 24", {1, 65, 65, 2, 2, 24, true, 0.2f}, {13, 20}},
    {"more keys than queries", {2, 19, 40, 4, 2, 8, true, 0.35f}, {8, 8}},
    {"queries that see no key", {1, 40, 19, 4, 1, 8, true, 0.35f}, {8, 5}},
    {"one query, d 1", {1, 1, 130, 1, 1, 1, false, 1.0f}, {4, 32}},
    {"large scores", {1, 48, 48, 1, 1, 16, false, 8.0f}, {16, 16}},
    {"one block", {1, 30, 30, 1, 1, 8, false, 0.35f}, {64, 64}},
    {"padding", {3, 40, 40, 2, 2, 16, false, 0.25f}, {16, 16}, 0.0, {40, 17, 0}},
    {"dropout", {2, 50, 50, 2, 1, 16, false, 0.25f}, {16, 20}, 0.25},
    {"dropout, causal, padding", {2, 33, 33, 2, 2, 8, true, 0.35f}, {8, 16}, 0.5, {20, 33}},
    {"blocks", {1, 40, 40, 2, 2, 8, false, 0.35f}, {16, 8}, 0.0, {}, {1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1}},
};

struct Tensors {
    std::vector<float> q, k, v, dout;
    std::vector<float> out, dq, dk, dv;
    std::vector<float> rows, more_rows;  // (batch, heads, seqlen_q): l and m, or L
};

std::vector<float> random_values(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    std::ranges::generate(values, [&] { return normal(generator); });
    return values;
}

Tensors random_tensors(const Shape& s) {
    const auto q_size = static_cast<std::size_t>(s.batch * s.seqlen_q * s.heads * s.head_dim);
    const auto k_size = static_cast<std::size_t>(s.batch * s.seqlen_k * s.kv_heads * s.head_dim);
    const auto poison = [](std::size_t size) { return std::vector<float>(size, std::nanf("")); };
    const auto rows = static_cast<std::size_t>(s.batch * s.heads * s.seqlen_q);
    return {random_values(q_size, 1),
            random_values(k_size, 2),
            random_values(k_size, 3),
            random_values(q_size, 4),
            poison(q_size),
            poison(q_size),
            poison(k_size),
            poison(k_size),
            poison(rows),
            poison(rows)};
}

oracle::Problem problem_of(const Case& c, const Tensors& t) {
    const Shape& s = c.shape;
    const auto doubles = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
    oracle::Problem p;
    for (std::int64_t b = 0; b < s.batch; ++b)
        p.sequences.push_back({b * s.seqlen_q, s.seqlen_q, b * s.seqlen_k, s.seqlen_k});
    p.rows_q = s.batch * s.seqlen_q, p.rows_k = s.batch * s.seqlen_k;
    p.heads = s.heads, p.kv_heads = s.kv_heads;
    p.head_dim = p.head_dim_v = s.head_dim;
    p.q = doubles(t.q), p.k = doubles(t.k), p.v = doubles(t.v), p.dout = doubles(t.dout);
    p.scale = s.scale, p.causal = s.causal;
    p.dropout = c.dropout, p.seed = c.masking().seed;
    if (c.key_lengths.empty() && c.blocks.empty()) return p;
    const std::int64_t Tc = (s.seqlen_k + c.tile.Bc - 1) / c.tile.Bc;
    p.mask.shape = {s.batch, 1, s.seqlen_q, s.seqlen_k};
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t i = 0; i < s.seqlen_q; ++i)
            for (std::int64_t j = 0; j < s.seqlen_k; ++j) {
                const bool padding = !c.key_lengths.empty() && j >= c.key_lengths[static_cast<std::size_t>(b)];
                const auto block = static_cast<std::size_t>(i / c.tile.Br * Tc + j / c.tile.Bc);
                p.mask.values.push_back(!padding && (c.blocks.empty() || c.blocks[block] != 0) ? 1.0 : 0.0);
            }
    return p;
}

// What is expected of a case, computed once.
class Expected {
public:
    Expected(const Case& c, const Tensors& t)
        : problem_(problem_of(c, t)),
          exact_(oracle::exact_attention(problem_, oracle::Pass::forward_and_backward)),
          standard_(oracle::standard_attention(problem_, oracle::Precision::fp32, oracle::Pass::forward_and_backward,
                                               true)) {}

    void compare(const Tensors& t) const {
        const auto& e = exact_;
        const auto roundoff = [&](double terms, bool cancel, double from_out) {
            return oracle::gradient_roundoff(terms, e.largest_lse, cancel, from_out, oracle::Precision::fp32);
        };
        compare("out", t.out, standard_.out, e.out, 0.0);
        compare("dq", t.dq, standard_.dq, e.dq, roundoff(e.largest_dq_terms, true, e.largest_dq_from_out));
        compare("dk", t.dk, standard_.dk, e.dk, roundoff(e.largest_dk_terms, true, e.largest_dk_from_out));
        compare("dv", t.dv, standard_.dv, e.dv, roundoff(e.largest_dv_terms, false, 0.0));
    }

    // lse(b, h, i) of what the algorithm keeps for a query.
    template <class Lse>
    void compare_lse(const Shape& s, Lse lse) const {
        const double allowed = oracle::allowed_lse_error(exact_.largest_score, exact_.largest_lse);
        for (std::int64_t b = 0, n = 0; b < s.batch; ++b)
            for (std::int64_t h = 0; h < s.heads; ++h)
                for (std::int64_t i = 0; i < s.seqlen_q; ++i, ++n) {
                    const double exact = exact_.lse[static_cast<std::size_t>((b * s.seqlen_q + i) * s.heads + h)];
                    const double value = lse(static_cast<std::size_t>(n));
                    if (value == exact) continue;  // -inf
                    EXPECT_NEAR(value, exact, allowed) << "lse of query " << i;
                }
    }

private:
    static void compare(const char* name, const std::vector<float>& values, const std::vector<double>& standard,
                        const std::vector<double>& exact, double roundoff) {
        const std::vector<double> doubles(values.begin(), values.end());
        const auto error = oracle::error_of(doubles, exact);
        const auto allowed =
            oracle::allowed_error(oracle::error_of(standard, exact), exact, oracle::Precision::fp32, roundoff);
        EXPECT_LE(error.max, allowed.max) << name;
        EXPECT_LE(error.rms, allowed.rms) << name;
    }

    oracle::Problem problem_;
    oracle::Result exact_;
    oracle::Result standard_;
};

class PlainBaselines : public testing::TestWithParam<Case> {};
class Baselines : public testing::TestWithParam<Case> {};

TEST_P(PlainBaselines, StandardAttention) {
    const Case& c = GetParam();
    const Shape& shape = c.shape;
    Tensors t = random_tensors(shape);
    const Expected expected(c, t);
    for (const int threads : {1, 2, 3})
        for (const bool keep_P : {true, false}) {
            std::vector<float> P(
                keep_P ? static_cast<std::size_t>(shape.batch * shape.heads * shape.seqlen_q * shape.seqlen_k) : 0);
            float* P_data = keep_P ? P.data() : nullptr;
            standard_forward(shape, t.q.data(), t.k.data(), t.v.data(), t.out.data(), P_data, threads);
            standard_backward(shape, t.q.data(), t.k.data(), t.v.data(), P_data, t.dout.data(), t.dq.data(),
                              t.dk.data(), t.dv.data(), threads);
            expected.compare(t);
        }
}

TEST_P(PlainBaselines, RabeAndStaats) {
    const Case& c = GetParam();
    Tensors t = random_tensors(c.shape);
    const Expected expected(c, t);
    for (const int threads : {1, 3})
        for (const Chunks chunks : {Chunks{c.tile.Br, c.tile.Bc}, Chunks{}}) {
            rabe_staats_forward(c.shape, chunks, t.q.data(), t.k.data(), t.v.data(), t.out.data(), threads);
            rabe_staats_backward(c.shape, chunks, t.q.data(), t.k.data(), t.v.data(), t.dout.data(), t.dq.data(),
                                 t.dk.data(), t.dv.data(), threads);
            expected.compare(t);
        }
}

TEST_P(Baselines, FlashAttention1) {
    const Case& c = GetParam();
    Tensors t = random_tensors(c.shape);
    const Expected expected(c, t);
    auto& l = t.rows;
    auto& m = t.more_rows;
    for (const int threads : {1, 3}) {
        flash1_forward(c.shape, c.masking(), c.tile, t.q.data(), t.k.data(), t.v.data(), t.out.data(), l.data(),
                       m.data(), threads);
        flash1_backward(c.shape, c.masking(), c.tile, t.q.data(), t.k.data(), t.v.data(), t.out.data(), l.data(),
                        m.data(), t.dout.data(), t.dq.data(), t.dk.data(), t.dv.data(), threads);
        expected.compare(t);
        expected.compare_lse(c.shape, [&](std::size_t n) { return m[n] + std::log(double{l[n]}); });
    }
}

std::vector<Case> plain_cases() {
    std::vector<Case> plain;
    std::ranges::copy_if(cases, std::back_inserter(plain), &Case::plain);
    return plain;
}

INSTANTIATE_TEST_SUITE_P(Cases, PlainBaselines, testing::ValuesIn(plain_cases()));
TEST_P(Baselines, FlashAttention2) {
    const Case& c = GetParam();
    Tensors t = random_tensors(c.shape);
    const Expected expected(c, t);
    auto& L = t.rows;
    for (const int threads : {1, 3}) {
        flash2_forward(c.shape, c.masking(), c.tile, t.q.data(), t.k.data(), t.v.data(), t.out.data(), L.data(),
                       threads);
        flash2_backward(c.shape, c.masking(), c.tile, t.q.data(), t.k.data(), t.v.data(), t.out.data(), L.data(),
                        t.dout.data(), t.dq.data(), t.dk.data(), t.dv.data(), threads);
        expected.compare(t);
        expected.compare_lse(c.shape, [&](std::size_t n) { return double{L[n]}; });
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, Baselines, testing::ValuesIn(cases));

TEST(Tiles, OfFlashAttention1AreThePapers) {
    EXPECT_EQ(flash1_tile(4 * 64 * 32, 64).Bc, 32);
    EXPECT_EQ(flash1_tile(4 * 64 * 32, 64).Br, 32);
    EXPECT_EQ(flash1_tile(4 * 64 * 32 + 1, 64).Bc, 33);
    EXPECT_EQ(flash1_tile(4 * 64 * 100, 64).Bc, 100);
    EXPECT_EQ(flash1_tile(4 * 64 * 100, 64).Br, 64);
}

}  // namespace
}  // namespace flashtile::baselines
