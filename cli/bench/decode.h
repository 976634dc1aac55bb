// decode.h: `bench decode`: few queries a sequence on keys and values in a cache, which memory bounds.
#pragma once

#include "bench/options.h"

namespace flashtile::cli::bench {

// As run() of run.h.
int run_decode(const Options& options);

}  // namespace flashtile::cli::bench
