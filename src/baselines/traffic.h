// traffic.h: how many elements of one head the papers' algorithms move between slow and fast memory: analytic, by the
// formulas of docs/algorithm.md, and counted, by walking the algorithms themselves.
#pragma once

#include <cstdint>

#include "baselines/masking.h"

namespace flashtile::baselines {

enum class Algorithm { standard, flash1, flash2 };
enum class Direction { forward, backward };

struct TrafficProblem {
    Algorithm algorithm = Algorithm::flash1;
    Direction direction = Direction::forward;
    std::int64_t N = 0;    // queries, and keys
    std::int64_t d = 0;    // head dimension
    std::int64_t M = 0;    // elements of fast memory
    Tile tile{0, 0};       // 0: by the algorithm's rule, from M
    bool causal = false;   // blocks that no query sees are skipped
    double density = 1.0;  // of blocks that are computed, evenly spread, as in block-sparse attention; not with causal
};

// The tile that the problem gets; of standard attention 0.
Tile tile_of(const TrafficProblem& problem);

struct Traffic {
    std::int64_t loads = 0;
    std::int64_t stores = 0;
    std::int64_t fast = 0;  // elements of the blocks that fast memory holds; 0: the algorithm has none of its own
    std::int64_t elements() const { return loads + stores; }
};
Traffic counted_traffic(const TrafficProblem& problem);

// What is counted lies between elements - below and elements + above: the terms that rounding to whole blocks costs.
struct AnalyticTraffic {
    double elements = 0.0;
    double below = 0.0;
    double above = 0.0;
    bool holds(const Traffic& counted) const {
        const auto n = static_cast<double>(counted.elements());
        return n >= elements - below - 0.5 && n <= elements + above + 0.5;  // whole numbers beside rounded ones
    }
};
AnalyticTraffic analytic_traffic(const TrafficProblem& problem);

}  // namespace flashtile::baselines
