// paper_on_gpu.h: `bench paper --device=cuda`: bench_cuda/paper.h measures, tools/gpu_bench.py measures PyTorch's
// where a PyTorch with CUDA is here, and tools/plot_paper.py draws where matplotlib is.
#pragma once

#include "bench/options.h"

namespace flashtile::cli::bench {

// The exit code. Throws std::invalid_argument for an option that it has no use for.
int run_paper_on_gpu(const Options& options);

}  // namespace flashtile::cli::bench
