// cpu_problem.cpp: see cpu_problem.h.
#include "tune/cpu_problem.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

namespace flashtile::cli::tune {
namespace {

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

int runs_of_a_sample(double milliseconds_of_one) {
    return static_cast<int>(std::clamp(std::ceil(kSampleMilliseconds / milliseconds_of_one), 1.0, kMostRuns));
}

CpuProblem::CpuProblem(const options& wanted, const ShapeOptions& s, dtype type, Pass pass)
    : options_(wanted), type_(type), pass_(pass) {
    const std::vector<std::int64_t> of_q = {s.batch, s.seqlen_q, s.heads, s.head_dim},
                                    of_k = {s.batch, s.seqlen_k, s.kv_heads, s.head_dim},
                                    of_v = {s.batch, s.seqlen_k, s.kv_heads, s.head_dim_v},
                                    of_out = {s.batch, s.seqlen_q, s.heads, s.head_dim_v};
    const auto random = [&](const std::vector<std::int64_t>& shape, std::uint64_t seed) {
        Tensor t{random_numbers(type, count_of(shape), seed), {}};
        t.view = view(t.numbers.data(), type, shape);
        return t;
    };
    const auto output = [&](const std::vector<std::int64_t>& shape, dtype of) {
        Tensor t{Numbers(of, count_of(shape)), {}};
        t.view = view(t.numbers.data(), of, shape);
        return t;
    };
    q_ = random(of_q, 1);
    k_ = random(of_k, 2);
    v_ = random(of_v, 3);
    out_ = output(of_out, type);
    lse_ = output({s.batch, s.heads, s.seqlen_q}, fp32);
    if (pass == Pass::forward) return;
    forward(options_, q_.view, k_.view, v_.view, out_.view, lse_.view);
    dout_ = random(of_out, 4);
    dq_ = output(of_q, type);
    dk_ = output(of_k, type);
    dv_ = output(of_v, type);
    gradients_ = {
        .out = out_.view, .lse = lse_.view, .dout = dout_.view, .dq = dq_.view, .dk = dk_.view, .dv = dv_.view};
}

void CpuProblem::run() {
    if (pass_ == Pass::forward)
        forward(options_, q_.view, k_.view, v_.view, out_.view, lse_.view);
    else
        backward(options_, q_.view, k_.view, v_.view, gradients_);
}

Results CpuProblem::results() {
    const auto poison = [](const Tensor& t) { std::memset(t.numbers.data(), 0xFF, t.numbers.bytes()); };  // NaNs
    if (pass_ == Pass::forward) {
        poison(out_);
        run();
        return {.out = out_.numbers.as_floats(), .dq = {}, .dk = {}, .dv = {}};
    }
    for (const Tensor* gradient : {&dq_, &dk_, &dv_}) poison(*gradient);
    run();
    return {.out = {}, .dq = dq_.numbers.as_floats(), .dk = dk_.numbers.as_floats(), .dv = dv_.numbers.as_floats()};
}

double CpuProblem::milliseconds(int runs) {
    const auto start = std::chrono::steady_clock::now();
    for (int n = 0; n < runs; ++n) run();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / runs;
}

std::function<double()> CpuProblem::sampler() {
    const int runs = runs_of_a_sample(milliseconds(1));
    return [this, runs] { return milliseconds(runs); };
}

}  // namespace flashtile::cli::tune
