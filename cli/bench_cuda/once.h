// once.h: one method of `bench baselines`, run once and not timed, for a profiler that reads what its kernels move
// (tools/measure_io.py).
#pragma once

#include <string>

#include "bench_cuda/run.h"

namespace flashtile::cli::bench_cuda {

// `what` is a pass and a method's name, "forward:flashtile" or "backward:fa1+3.2"; backward runs after forward. At the
// first point of the grid. Prints the tile. Throws std::invalid_argument for what is neither.
int run_once(const Options& options, const std::string& what);

}  // namespace flashtile::cli::bench_cuda
