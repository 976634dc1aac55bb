// memory.h: peak memory beyond inputs and outputs, against sequence length: linear for flashtile, quadratic for
// standard attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/point.h"

namespace flashtile::cli::bench {

struct MemoryRow {
    Point point;
    // Of each method; empty: it has failed, or would not fit in this machine's memory.
    std::vector<std::pair<std::string, std::optional<double>>> mib;
};

// Of flashtile, standard attention and `others`, which make_other() makes. Each number comes from a child process of
// its own: the peak of its resident memory less what it had before the call, after a tiny call has paid for thread
// stacks and the like. Call it before anything starts threads.
MemoryRow measure_memory(const Point& point, flashtile::isa isa, const std::vector<std::string>& others);

}  // namespace flashtile::cli::bench
