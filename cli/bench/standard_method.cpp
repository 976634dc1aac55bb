// standard_method.cpp: standard attention as a method of the benchmark.
#include <fmt/format.h>

#include "available_memory.h"
#include "bench/float_method.h"

namespace flashtile::cli::bench {
namespace {

class Standard final : public FloatMethod {
public:
    std::string name() const override { return "standard"; }

    std::string why_not(const Point& point) const override {
        // Forward keeps one head's P a thread; backward needs the P of every head, and dP of one head a thread.
        const double head = point.score_bytes() / static_cast<double>(point.batch * point.heads);
        const double needed = (point.pass == Pass::forward ? 0.0 : point.score_bytes()) + head * point.threads;
        if (needed <= memory_to_use()) return "";
        return fmt::format("its score matrices take {:.1f} GiB, {:.1f} GiB may be used", needed / (1 << 30),
                           memory_to_use() / (1 << 30));
    }

    void prepare(const Point& point, const Inputs& inputs) override {
        if (point.pass != Pass::forward) P_.resize(static_cast<std::size_t>(point.score_bytes() / sizeof(float)));
        FloatMethod::prepare(point, inputs);
    }

    // For a reference without the P of every head.
    void run_without_P(const Point& point, const Inputs& inputs) {
        load(point, inputs);
        forward();
        if (point.pass != Pass::forward) backward();
    }

    void release() override {
        FloatMethod::release();
        P_ = std::vector<float>();
    }

private:
    float* P() { return P_.empty() ? nullptr : P_.data(); }
    void forward() override {
        baselines::standard_forward(shape(), q_.data(), k_.data(), v_.data(), results_.out.data(), P(), point_.threads);
    }
    void backward() override {
        baselines::standard_backward(shape(), q_.data(), k_.data(), v_.data(), P(), dout_.data(), results_.dq.data(),
                                     results_.dk.data(), results_.dv.data(), point_.threads);
    }

    std::vector<float> P_;
};

}  // namespace

std::unique_ptr<Method> make_standard() {
    return std::make_unique<Standard>();
}

Results standard_results(const Point& point, const Inputs& inputs) {
    Standard standard;
    standard.run_without_P(point, inputs);
    return standard.results();
}

double memory_to_use() {
    return 0.6 * static_cast<double>(available_memory());
}

}  // namespace flashtile::cli::bench
