// exact_decode.h: decode in double, written the plain way: what the results of bench's methods are compared with.
#pragma once

#include "bench/inputs.h"

namespace flashtile::cli::bench {

// `out` alone.
Results exact_decode(const Point& point, const Inputs& inputs);

}  // namespace flashtile::cli::bench
