// cpu_problem.h: the problem that `flashtile tune --device=cpu` measures.
#pragma once

#include <flashtile/flashtile.hpp>

#include "shape_options.h"
#include "tune/measured_problem.h"
#include "tune/tiles.h"

namespace flashtile::cli::tune {

class CpuProblem final : public MeasuredProblem {
public:
    // The shape is complete. Backward's out and lse are computed here, by forward.
    CpuProblem(const options& wanted, const ShapeOptions& shape, dtype type, Pass pass);

    Results results() override;
    std::function<double()> sampler() override;

private:
    struct Tensor {
        Numbers numbers;
        tensor view;
    };
    void run();
    double milliseconds(int runs);

    options options_;
    dtype type_;
    Pass pass_;
    Tensor q_, k_, v_, out_, lse_, dout_, dq_, dk_, dv_;
    backward_args gradients_;
};

}  // namespace flashtile::cli::tune
