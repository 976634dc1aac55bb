// problem.h: one point of the grid on a GPU: random tensors, a pass over them by any method, and what it wrote.
#pragma once

#include "baselines/cuda/attention.h"
#include "numbers.h"

namespace flashtile::cli::bench_cuda {

using gpu_baselines::Attention;
using gpu_baselines::Shape;

enum class Pass { forward, backward };

const char* name_of(Pass pass);

// 4 seqlen^2 head_dim heads batch, halved when causal; backward 2.5 times that.
double flops(const Shape& shape, Pass pass);

class Problem {
public:
    Problem(const Shape& shape, dtype type);

    // Of a run on poisoned memory: pieces of the results, spread over all of them. What backward takes from forward is
    // there from then on.
    Results results(Attention& attention, Pass pass);

    // Milliseconds of a run, by the GPU's clock, of so many.
    double sample(Attention& attention, Pass pass, int runs);

private:
    std::int64_t count(std::int64_t seqlen) const { return shape_.batch * seqlen * shape_.heads * shape_.head_dim; }
    gpu_resources::Buffer random(std::int64_t seqlen, std::uint64_t seed) const;
    gpu_resources::Buffer output(std::int64_t seqlen) const;
    std::vector<float> pieces(const gpu_resources::Buffer& from) const;

    Shape shape_;
    dtype type_;
    gpu_resources::Stream stream_;
    gpu_resources::Event before_, after_;
    gpu_resources::Buffer q_, k_, v_, out_, lse_, dout_, dq_, dk_, dv_;
    gpu_baselines::Operands operands_;
};

}  // namespace flashtile::cli::bench_cuda
