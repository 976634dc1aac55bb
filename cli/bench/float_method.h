// float_method.h: an algorithm of src/baselines as a method of the benchmark. It computes in fp32: 16-bit inputs are
// converted before the clock starts.
#pragma once

#include <string>
#include <vector>

#include "baselines/standard_attention.h"
#include "bench/method.h"

namespace flashtile::cli::bench {

class FloatMethod : public LocalMethod {
public:
    std::string isa(const Point& point) const override;
    std::string why_not(const Point&) const override { return ""; }
    void prepare(const Point& point, const Inputs& inputs) override;
    Results results() override { return results_; }
    void release() override;

protected:
    // Inputs and results of the point.
    void load(const Point& point, const Inputs& inputs);
    baselines::Shape shape() const;

    std::vector<float> q_, k_, v_, dout_;
    Results results_;
};

}  // namespace flashtile::cli::bench
