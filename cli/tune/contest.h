// contest.h: timing tiles so that the comparison is fair, and which of them is kept: samples alternate, in an order
// that rotates from round to round; the median counts; and who challenges the table's tile must win clearly, since a
// measurement that is repeated differs by a percent or so.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace flashtile::cli::tune {

struct Contestant {
    std::string tile;                // "128x64 tile, 4 warps, 2 stages"
    std::string choice;              // as flashtile_plan_report gives it
    std::string out_because = {};    // not "": it does not run, or its results are wrong
    bool wrong = false;              // the latter
    std::function<double()> sample;  // milliseconds of one run
    double milliseconds = 0.0;       // median
};

// What a tile must beat the table's by.
inline constexpr double kClear = 1.02;

// Times those that are not out, for about so many seconds, each a few times at least.
void time_in_turns(std::vector<Contestant>& contestants, double seconds);

// Which is to be kept: the fastest, or the first, which is the table's, where none beats that clearly.
std::size_t best_of(const std::vector<Contestant>& contestants);

// The choice with its measurement, as flashtile_use_choice takes it.
std::string measured_choice(const Contestant& best, const Contestant& table);

}  // namespace flashtile::cli::tune
