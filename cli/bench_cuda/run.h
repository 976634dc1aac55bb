// run.h: `bench baselines`: what each of FlashAttention-2's three changes brought on this GPU, and what standard
// attention takes. Every result is compared with standard attention's before its speed is shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_cuda/problem.h"

namespace flashtile::cli::bench_cuda {

struct Options {
    std::vector<std::int64_t> head_dims = {64, 128};
    std::vector<std::int64_t> seqlens;  // empty: 512, 1024 .. 16384, as far as `tokens` reaches
    std::string causal = "both";        // 0, 1 or both
    std::string pass = "both";          // forward, backward or both
    bool fp16 = false;                  // else bf16
    std::int64_t tokens = 16384;
    std::int64_t heads = 0;     // 0: hidden dimension 2048
    double seconds = 20.0;      // of timing; a few samples of each method are taken whatever they take
    double most_seconds = 0.0;  // not 0: after so many no other point is begun
    std::string json;
};

// The FlashAttention-2 paper's, as far as the options reach.
std::vector<Shape> grid(const Options& options);

// The exit code: 1 where a method's result was wrong. Throws where there is no GPU.
int run(const Options& options);

}  // namespace flashtile::cli::bench_cuda
