// large_test.cpp: tensors past 2^31 elements. Neither the host nor the oracle can take them whole, so parts are taken
// that are problems of their own: a window of a long sequence, a sequence of a large batch, a few rows of a large bias.
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "device/device_tensor.h"
#include "device/on_gpu.h"
#include "oracle/attention.h"
#include "oracle/tolerance.h"

namespace flashtile::device_tests {
namespace {

using oracle::Precision;

constexpr std::int64_t kLimit = std::int64_t{1} << 31;
constexpr std::int64_t kHeadDim = 128;

class Large : public OnGpu {
protected:
    static bool fits(double gigabytes) { return static_cast<double>(gpu_resources::free_bytes()) > 1.05e9 * gigabytes; }
};

struct Tensors {
    Tensors(std::int64_t batch, std::int64_t seqlen, std::int64_t heads, std::int64_t d)
        : shape{batch, seqlen, heads, d}, lse(fp32, {batch, heads, seqlen}) {
        std::uint64_t seed = 0;
        for (DeviceTensor* t : {&q, &k, &v, &dout}) t->fill_normal(++seed);
    }
    void run(const flashtile::options& o) const {
        forward(o, q.view(), k.view(), v.view(), out.view(), lse.view());
        backward(o, q.view(), k.view(), v.view(), out.view(), lse.view(), dout.view(), dq.view(), dk.view(), dv.view());
        gpu_resources::synchronize();
    }
    std::vector<std::int64_t> shape;
    DeviceTensor q{bf16, shape}, k{bf16, shape}, v{bf16, shape}, dout{bf16, shape};
    DeviceTensor out{bf16, shape}, dq{bf16, shape}, dk{bf16, shape}, dv{bf16, shape};
    DeviceTensor lse;
};

void expect_close(const char* name, std::span<const double> ours, std::span<const double> exact,
                  std::span<const double> standard, Precision precision, double roundoff = 0.0) {
    const oracle::Error error = oracle::error_of(ours, exact);
    const oracle::Error allowed = oracle::allowed_error(oracle::error_of(standard, exact), exact, precision, roundoff);
    EXPECT_LE(error.max, allowed.max) << name;
    EXPECT_LE(error.rms, allowed.rms) << name;
}

void append(std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

// What backward's results are held to, as the conformance list's judge does.
struct Answers {
    explicit Answers(const oracle::Problem& problem)
        : exact(oracle::exact_attention(problem, oracle::Pass::forward_and_backward)),
          standard(oracle::standard_attention(problem, Precision::bf16, oracle::Pass::forward_and_backward)) {}

    double of_ds(double terms, double from_out) const {
        return oracle::gradient_roundoff(terms, exact.largest_lse, true, from_out, Precision::bf16);
    }
    double dq_roundoff() const { return of_ds(exact.largest_dq_terms, exact.largest_dq_from_out); }
    double dk_roundoff() const { return of_ds(exact.largest_dk_terms, exact.largest_dk_from_out); }
    double dv_roundoff() const {
        return oracle::gradient_roundoff(exact.largest_dv_terms, exact.largest_lse, false, 0.0, Precision::bf16);
    }

    oracle::Result exact, standard;
};

void expect_lse(const std::vector<double>& ours, const oracle::Result& exact) {
    EXPECT_LE(oracle::error_of(ours, exact.lse).max, oracle::allowed_lse_error(exact.largest_score, exact.largest_lse));
}

oracle::Problem one_head(std::int64_t queries, std::int64_t keys, std::int64_t d) {
    oracle::Problem p;
    p.sequences = {{0, queries, 0, keys}};
    p.rows_q = queries;
    p.rows_k = keys;
    p.head_dim = p.head_dim_v = d;
    p.scale = 1.0 / std::sqrt(static_cast<double>(d));
    return p;
}

// One sequence whose rows go past 2^31 elements; each query sees the keys of a window.
TEST_F(Large, ALongSequence) {
    constexpr std::int64_t seqlen = 70000, heads = 256, left = 63, part = 160;
    static_assert(seqlen * heads * kHeadDim > kLimit);
    if (!fits(52)) GTEST_SKIP() << "needs 52 GB of free GPU memory";
    const Tensors t(1, seqlen, heads, kHeadDim);
    t.run({.causal = true, .window = {left, -1}});

    const auto rows = [&](const DeviceTensor& tensor, std::int64_t h, std::int64_t first, std::int64_t count) {
        std::vector<double> values;
        for (std::int64_t i = first; i < first + count; ++i)
            append(values, tensor.read((i * heads + h) * kHeadDim, kHeadDim));
        return values;
    };
    for (const std::int64_t first : {left, kLimit / (heads * kHeadDim) - part / 2, seqlen - part})
        for (const std::int64_t h : {std::int64_t{0}, heads - 1}) {
            SCOPED_TRACE("rows from " + std::to_string(first) + ", head " + std::to_string(h));
            oracle::Problem p = one_head(part, part + left, kHeadDim);
            p.causal = true;
            p.window_left = left;
            p.q = rows(t.q, h, first, part);
            p.k = rows(t.k, h, first - left, part + left);
            p.v = rows(t.v, h, first - left, part + left);
            p.dout = rows(t.dout, h, first, part);
            const Answers answers(p);
            expect_close("out", rows(t.out, h, first, part), answers.exact.out, answers.standard.out, Precision::bf16);
            expect_lse(t.lse.read(h * seqlen + first, part), answers.exact);
            expect_close("dq", rows(t.dq, h, first, part), answers.exact.dq, answers.standard.dq, Precision::bf16,
                         answers.dq_roundoff());
            // Keys that no query outside this part sees.
            const std::int64_t whole = part - left;
            const auto inner = [&](const std::vector<double>& values) {
                return std::span(values).subspan(static_cast<std::size_t>(left * kHeadDim),
                                                 static_cast<std::size_t>(whole * kHeadDim));
            };
            expect_close("dk", rows(t.dk, h, first, whole), inner(answers.exact.dk), inner(answers.standard.dk),
                         Precision::bf16, answers.dk_roundoff());
            expect_close("dv", rows(t.dv, h, first, whole), inner(answers.exact.dv), inner(answers.standard.dv),
                         Precision::bf16, answers.dv_roundoff());
        }
}

// So many short sequences that the tensors go past 2^31 elements, and batch * heads past 65535.
TEST_F(Large, ManySequences) {
    constexpr std::int64_t batch = 40000, seqlen = 64, heads = 8;
    constexpr std::int64_t size = seqlen * heads * kHeadDim;
    static_assert(batch * size > kLimit);
    if (!fits(58)) GTEST_SKIP() << "needs 58 GB of free GPU memory";
    const Tensors t(batch, seqlen, heads, kHeadDim);
    t.run({});
    for (const std::int64_t b : {std::int64_t{0}, kLimit / size - 1, kLimit / size, batch - 1}) {
        SCOPED_TRACE("sequence " + std::to_string(b));
        const auto sequence = [&](const DeviceTensor& tensor) { return tensor.read(b * size, size); };
        oracle::Problem p = one_head(seqlen, seqlen, kHeadDim);
        p.heads = p.kv_heads = heads;
        p.q = sequence(t.q);
        p.k = sequence(t.k);
        p.v = sequence(t.v);
        p.dout = sequence(t.dout);
        const Answers answers(p);
        expect_close("out", sequence(t.out), answers.exact.out, answers.standard.out, Precision::bf16);
        expect_close("dq", sequence(t.dq), answers.exact.dq, answers.standard.dq, Precision::bf16,
                     answers.dq_roundoff());
        expect_close("dk", sequence(t.dk), answers.exact.dk, answers.standard.dk, Precision::bf16,
                     answers.dk_roundoff());
        expect_close("dv", sequence(t.dv), answers.exact.dv, answers.standard.dv, Precision::bf16,
                     answers.dv_roundoff());
    }
}

// A bias of more than 2^31 elements, and its gradient.
TEST_F(Large, ABias) {
    constexpr std::int64_t n = 47000, d = 64;
    static_assert(n * n > kLimit);
    if (!fits(30)) GTEST_SKIP() << "needs 30 GB of free GPU memory";
    const Tensors t(1, n, 1, d);
    DeviceTensor bias(bf16, {n, n}), dbias(bf16, {n, n});
    bias.fill_normal(9);
    flashtile::options o;
    o.bias = bias.view();
    forward(o, t.q.view(), t.k.view(), t.v.view(), t.out.view(), t.lse.view());
    backward(o, t.q.view(), t.k.view(), t.v.view(),
             {.out = t.out.view(),
              .lse = t.lse.view(),
              .dout = t.dout.view(),
              .dq = t.dq.view(),
              .dk = t.dk.view(),
              .dv = t.dv.view(),
              .dbias = dbias.view()});
    gpu_resources::synchronize();

    const std::vector<std::int64_t> sample{0, 1, n / 2, kLimit / n - 1, kLimit / n, kLimit / n + 1, n - 2, n - 1};
    const auto count = static_cast<std::int64_t>(sample.size());
    const auto rows = [&](const DeviceTensor& tensor, std::int64_t width) {
        std::vector<double> values;
        for (const std::int64_t i : sample) append(values, tensor.read(i * width, width));
        return values;
    };
    oracle::Problem p = one_head(count, n, d);
    p.q = rows(t.q, d);
    p.k = t.k.read(0, n * d);
    p.v = t.v.read(0, n * d);
    p.dout = rows(t.dout, d);
    p.bias = {{1, 1, count, n}, rows(bias, n)};
    const Answers answers(p);
    expect_close("out", rows(t.out, d), answers.exact.out, answers.standard.out, Precision::bf16);
    expect_lse(rows(t.lse, 1), answers.exact);
    expect_close("dq", rows(t.dq, d), answers.exact.dq, answers.standard.dq, Precision::bf16, answers.dq_roundoff());
    expect_close("dbias", rows(dbias, n), answers.exact.dbias, answers.standard.dbias, Precision::bf16,
                 answers.of_ds(answers.exact.largest_dbias_terms, answers.exact.largest_dbias_from_out));
}

// Few rows, so far apart that those of one tile span more than 2^31 elements. All tensors share the memory of the rows.
TEST_F(Large, RowsFarApart) {
    constexpr std::int64_t rows = 40, stride = std::int64_t{1} << 26, d = 64;
    static_assert((rows - 1) * stride > kLimit);
    if (!fits(6)) GTEST_SKIP() << "needs 6 GB of free GPU memory";
    DeviceTensor memory(bf16, {rows, stride});
    memory.fill_normal(5);
    DeviceTensor lse(fp32, {1, 1, rows});
    const auto place = [&](std::int64_t which) {
        auto* data = static_cast<char*>(memory.view().raw().data) + which * d * 2;
        return flashtile::view(data, bf16, {1, rows, 1, d}, {0, stride, d, 1}, kGpu);
    };
    enum : std::int64_t { q, k, v, dout, out, dq, dk, dv };
    forward({}, place(q), place(k), place(v), place(out), lse.view());
    backward({}, place(q), place(k), place(v), place(out), lse.view(), place(dout), place(dq), place(dk), place(dv));
    gpu_resources::synchronize();

    const auto values = [&](std::int64_t which) {
        std::vector<double> result;
        for (std::int64_t i = 0; i < rows; ++i) append(result, memory.read(i * stride + which * d, d));
        return result;
    };
    oracle::Problem p = one_head(rows, rows, d);
    p.q = values(q);
    p.k = values(k);
    p.v = values(v);
    p.dout = values(dout);
    const Answers answers(p);
    expect_close("out", values(out), answers.exact.out, answers.standard.out, Precision::bf16);
    expect_lse(lse.read(0, rows), answers.exact);
    expect_close("dq", values(dq), answers.exact.dq, answers.standard.dq, Precision::bf16, answers.dq_roundoff());
    expect_close("dk", values(dk), answers.exact.dk, answers.standard.dk, Precision::bf16, answers.dk_roundoff());
    expect_close("dv", values(dv), answers.exact.dv, answers.standard.dv, Precision::bf16, answers.dv_roundoff());
}

}  // namespace
}  // namespace flashtile::device_tests
