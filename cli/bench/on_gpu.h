// on_gpu.h: the benchmark on a GPU, which tools/gpu_bench.py does: PyTorch, the peer there, must share its process,
// since two processes on one GPU take turns.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace flashtile::cli::bench {

// Both throw std::invalid_argument for an option that no benchmark on a GPU has a use for.
void refuse_on_gpu(bool given, const char* option);
void refuse_those_of_cpus(const Options& options);

// The options as arguments of gpu_bench.py. Throws std::invalid_argument for an option that it has no argument
// for.
std::vector<std::string> gpu_arguments(const Options& options);

// Returns the exit code. `more`: arguments of gpu_bench.py that no option stands for.
int run_on_gpu(const Options& options, const std::vector<std::string>& more = {});

// `bench baselines` (bench_cuda/run.h), which needs no Python. Throws std::invalid_argument for an option that it has
// no use for.
bool wants_baselines(const Options& options);
int run_baselines(const Options& options);

}  // namespace flashtile::cli::bench
