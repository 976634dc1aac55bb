// run.h: `flashtile io`: rows counted, printed, written and drawn.
#pragma once

#include "traffic/rows.h"

namespace flashtile::cli::traffic {

// The exit code: a count outside the terms of rounding is a wrong result.
int run(const Options& options);

}  // namespace flashtile::cli::traffic
