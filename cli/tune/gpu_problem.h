// gpu_problem.h: the problem that `flashtile tune` measures: random tensors on a GPU, a pass over them as often as
// wanted, and what it wrote.
#pragma once

#include <flashtile/flashtile.hpp>
#include <memory>
#include <vector>

#include "gpu_resources/gpu_resources.h"
#include "shape_options.h"
#include "tune/measured_problem.h"
#include "tune/tiles.h"

namespace flashtile::cli::tune {

class GpuProblem final : public MeasuredProblem {
public:
    // The shape is complete. Backward's out and lse are computed here, by forward.
    GpuProblem(const options& wanted, const ShapeOptions& shape, dtype type, int ordinal, Pass pass);

    Results results() override;
    std::function<double()> sampler() override;

private:
    // A graph of so many runs, with the tile that is chosen now.
    std::shared_ptr<const gpu_resources::Graph> graph(int runs);

    // Milliseconds of a graph, by the GPU's clock; it has run once before that.
    double milliseconds(const gpu_resources::Graph& graph);

    struct OnGpu {
        Numbers host;
        gpu_resources::Buffer buffer;
        tensor view;
    };
    OnGpu make(Numbers numbers, std::initializer_list<std::int64_t> shape) const;
    OnGpu random(std::initializer_list<std::int64_t> shape, std::uint64_t seed) const;
    OnGpu output(std::initializer_list<std::int64_t> shape) const;
    static std::vector<float> download(OnGpu& from);

    void submit();
    void submit_forward();
    void submit_backward();

    options options_;
    dtype type_;
    int ordinal_;
    Pass pass_;
    gpu_resources::Stream stream_;
    gpu_resources::Event before_, after_;
    OnGpu q_, k_, v_, out_, lse_, dout_, dq_, dk_, dv_;
    std::vector<gpu_resources::Buffer> workspaces_;  // the last is the largest; graphs may use the others
};

}  // namespace flashtile::cli::tune
