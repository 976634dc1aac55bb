// oracle_check.h: a tile's results on a small problem of the same kind, held against dense attention in fp64 as
// `flashtile verify` does it.
#pragma once

#include <string>

#include "tune/tiles.h"

namespace flashtile::cli::tune {

// What is wrong with the results of a tile of the problem's, or "". The tile stays chosen for the small problem.
std::string wrong_against_oracle(const PlanArguments& problem, Pass pass, const std::string& tile);

}  // namespace flashtile::cli::tune
