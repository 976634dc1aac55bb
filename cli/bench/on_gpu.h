// on_gpu.h: the benchmark on a GPU, which tools/gpu_bench.py does: PyTorch, the peer there, must share its process,
// since two processes on one GPU take turns.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace flashtile::cli::bench {

// The options as arguments of gpu_bench.py. Throws std::invalid_argument for an option that it has no argument
// for.
std::vector<std::string> gpu_arguments(const Options& options);

// Returns the exit code.
int run_on_gpu(const Options& options);

// `bench baselines` (bench_cuda/run.h), which needs no Python. Throws std::invalid_argument for an option that it has
// no use for.
bool wants_baselines(const Options& options);
int run_baselines(const Options& options);

}  // namespace flashtile::cli::bench
