// inputs.cpp: see inputs.h.
#include "bench/inputs.h"

namespace flashtile::cli::bench {

Inputs random_inputs(const Point& point) {
    Inputs inputs;
    inputs.q = random_numbers(point.dtype, point.q_size(), 1);
    inputs.k = random_numbers(point.dtype, point.kv_size(), 2);
    inputs.v = random_numbers(point.dtype, point.kv_size(), 3);
    if (has_backward(point.pass)) inputs.dout = random_numbers(point.dtype, point.q_size(), 4);
    return inputs;
}

}  // namespace flashtile::cli::bench
