// report.h: the benchmark's output: tables on the terminal, JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/ceilings.h"
#include "bench/measure.h"
#include "bench/memory.h"

namespace flashtile::cli::bench {

void print_ceilings(const Ceilings& ceilings);
// The rows of one point, with a heading where the point opens a new group of the grid (`previous` may be null).
void print_measurement(const Point& point, const Point* previous, const Measurement& measurement);
// Warns where the machine gave less than 0.9 of its best while a point was measured.
void print_if_busy(double share_of_ceiling);
void print_memory(const std::vector<MemoryRow>& rows);

nlohmann::json to_json(const Ceilings& ceilings);
nlohmann::json to_json(const Row& row);
nlohmann::json to_json(const MemoryRow& row);

}  // namespace flashtile::cli::bench
