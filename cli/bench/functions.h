// functions.h: `bench functions`: score and mask functions beside what they stand for: a built-in option, a packed
// batch, dense attention; and the first call of a new function.
#pragma once

#include "bench/options.h"

namespace flashtile::cli::bench {

// As run() of run.h.
int run_functions(const Options& options);

}  // namespace flashtile::cli::bench
