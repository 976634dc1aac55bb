// paper.h: `bench paper --device=cuda`: what the papers' figures show, measured on this GPU. PyTorch's part is
// tools/gpu_bench.py's, and tools/plot_paper.py draws both.
#pragma once

#include <string>

#include "bench_cuda/run.h"

namespace flashtile::cli::bench_cuda {

struct PaperOptions {
    Options grid;
    std::string folder;      // results.json goes there
    double seconds = 120.0;  // of all
};

// The exit code: 1 where a method's result was wrong. Throws where there is no GPU.
int run_paper(const PaperOptions& options);

}  // namespace flashtile::cli::bench_cuda
