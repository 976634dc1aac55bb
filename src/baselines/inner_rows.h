// inner_rows.h: how many rows the inner loop of a walk over blocks meets, all turns of the outer loop together.
#pragma once

#include "baselines/traffic.h"

namespace flashtile::baselines {

struct OuterLoop {
    double rows;        // of a block, before they are rounded up
    double reach;       // rows by which the inner loop's blocks may reach over a causal mask's diagonal
    double smaller;     // by which share of N / rows the number of whole blocks may be less
    bool over_queries;  // else over keys
};

// The formula, and what rounding to whole blocks may do to it (docs/algorithm.md). Nothing is both causal and of a
// density below 1.
AnalyticTraffic inner_rows(double N, const OuterLoop& outer, bool causal, double density = 1.0);

}  // namespace flashtile::baselines
