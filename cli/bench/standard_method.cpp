// standard_method.cpp: the standard-attention baseline of src/baselines as a method of the benchmark.
#include <cblas.h>
#include <fmt/format.h>

#include <cmath>

#include "available_memory.h"
#include "baselines/standard_attention.h"
#include "bench/method.h"

namespace flashtile::cli::bench {
namespace {

baselines::Shape shape_of(const Point& point) {
    return {.batch = point.batch,
            .seqlen_q = point.seqlen,
            .seqlen_k = point.seqlen,
            .heads = point.heads,
            .kv_heads = point.kv_heads,
            .head_dim = point.head_dim,
            .causal = point.causal,
            .scale = 1.0f / std::sqrt(static_cast<float>(point.head_dim))};
}

class Standard final : public LocalMethod {
public:
    std::string name() const override { return "standard"; }
    std::string isa(const Point&) const override { return fmt::format("openblas {}", openblas_get_corename()); }

    std::string why_not(const Point& point) const override {
        // Forward keeps one head's P a thread; backward needs the P of every head, and dP of one head a thread.
        const double head = point.score_bytes() / static_cast<double>(point.batch * point.heads);
        const double needed = (point.pass == Pass::forward ? 0.0 : point.score_bytes()) + head * point.threads;
        if (needed <= memory_to_use()) return "";
        return fmt::format("its score matrices take {:.1f} GiB, {:.1f} GiB may be used", needed / (1 << 30),
                           memory_to_use() / (1 << 30));
    }

    void prepare(const Point& point, const Inputs& inputs) override {
        load(point, inputs);
        if (point.pass != Pass::forward) P_.resize(static_cast<std::size_t>(point.score_bytes() / sizeof(float)));
        if (point.pass == Pass::backward) forward();
    }

    // For a reference without the P of every head.
    void load(const Point& point, const Inputs& inputs) {
        point_ = point;
        q_ = inputs.q.as_floats();
        k_ = inputs.k.as_floats();
        v_ = inputs.v.as_floats();
        results_.out.resize(q_.size());
        if (point.pass == Pass::forward) return;
        dout_ = inputs.dout.as_floats();
        results_.dq.resize(q_.size());
        results_.dk.resize(k_.size());
        results_.dv.resize(v_.size());
    }

    void run_without_P() {
        forward();
        if (point_.pass != Pass::forward) backward();
    }

    Results results() override { return results_; }

    void release() override {
        results_ = Results();
        for (auto* numbers : {&q_, &k_, &v_, &dout_, &P_}) *numbers = std::vector<float>();
    }

private:
    float* P() { return P_.empty() ? nullptr : P_.data(); }
    void forward() override {
        baselines::standard_forward(shape_of(point_), q_.data(), k_.data(), v_.data(), results_.out.data(), P(),
                                    point_.threads);
    }
    void backward() override {
        baselines::standard_backward(shape_of(point_), q_.data(), k_.data(), v_.data(), P(), dout_.data(),
                                     results_.dq.data(), results_.dk.data(), results_.dv.data(), point_.threads);
    }

    std::vector<float> q_, k_, v_, dout_, P_;
    Results results_;
};

}  // namespace

std::unique_ptr<Method> make_standard() {
    return std::make_unique<Standard>();
}

Results standard_results(const Point& point, const Inputs& inputs) {
    Standard standard;
    standard.load(point, inputs);
    standard.run_without_P();
    return standard.results();
}

double memory_to_use() {
    return 0.6 * static_cast<double>(available_memory());
}

}  // namespace flashtile::cli::bench
