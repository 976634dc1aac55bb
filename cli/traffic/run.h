// run.h: `flashtile io`: rows counted, printed, written and drawn.
#pragma once

#include "traffic/rows.h"

namespace flashtile::cli::traffic {

// The exit code: a count outside the terms of rounding is a wrong result.
int run(const Options& options);

// `io --measured`: tools/measure_io.py has Nsight Compute read what the kernels on this GPU move, of one point.
int run_measured(const Options& options);

}  // namespace flashtile::cli::traffic
