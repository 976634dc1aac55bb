// memory.h: peak memory beyond inputs and outputs, against sequence length: linear for flashtile, quadratic for
// standard attention.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/point.h"

namespace flashtile::cli::bench {

struct MemoryRow {
    Point point;
    std::optional<double> flashtile_mib;  // empty: the child process failed
    std::optional<double> standard_mib;   // empty: would not fit in this machine's memory
};

// Each number comes from a child process of its own: the peak of its resident memory less what it had before the call,
// after a tiny call has paid for thread stacks and the like. Call it before anything starts threads.
MemoryRow measure_memory(const Point& point, flashtile::isa isa);

}  // namespace flashtile::cli::bench
