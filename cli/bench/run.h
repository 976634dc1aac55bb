// run.h: a whole benchmark run, from options to tables, JSON and plot.
#pragma once

#include "bench/options.h"

namespace flashtile::cli::bench {

// Returns the exit code: exit_wrong_result where a method's result was wrong. Throws std::runtime_error or
// std::invalid_argument, before anything is measured, where something asked for cannot be honoured.
int run(const Options& options);

}  // namespace flashtile::cli::bench
