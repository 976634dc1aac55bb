// tiles.h: the tiles that `flashtile tune` may choose from for a problem, as the library names them, and having it
// choose one.
#pragma once

#include <string>
#include <vector>

#include "plan.h"

namespace flashtile::cli::tune {

enum class Pass { forward, backward };

const char* name(Pass pass);

struct NamedTile {
    std::string tile;    // "128x64 tile, 4 warps, 2 stages"
    std::string choice;  // as flashtile_use_choice takes it, without a measurement
};

struct Tiles {
    std::string kernel;            // that serves the problem
    std::vector<NamedTile> tiles;  // the table's first; none where there is nothing to choose from
};

// Throws std::invalid_argument where no kernel serves the problem.
Tiles tiles_of(const PlanArguments& problem, Pass pass);

// From here on this process runs such problems with the tile; throws where it would not.
void choose(const PlanArguments& problem, Pass pass, const NamedTile& tile);

}  // namespace flashtile::cli::tune
