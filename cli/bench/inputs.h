// inputs.h: the random inputs of a point of the benchmark's grid.
#pragma once

#include "bench/point.h"
#include "numbers.h"

namespace flashtile::cli::bench {

struct Inputs {
    Numbers q, k, v, dout;
};
Inputs random_inputs(const Point& point);

}  // namespace flashtile::cli::bench
