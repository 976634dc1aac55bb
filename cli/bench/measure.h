// measure.h: timing every method at a point so that the comparison is fair: same data, same run, results compared
// first, samples of the methods alternating in an order that rotates, each between two looks at the machine's ceiling,
// medians.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/method.h"

namespace flashtile::cli::bench {

struct Row {
    std::string method;
    std::string isa;
    Point point;
    double ms = 0.0;             // median
    double rate = 0.0;           // GFLOP/s, of decode GB/s
    double error = 0.0;          // of the first call: the largest difference, relative to the largest value
    double ceiling_share = 0.0;  // median over samples of (speed / mean of the looks before and after the sample)
};

struct Measurement {
    std::vector<Row> rows;
    double ceiling = 0.0;               // GFLOP/s, the median look; far below the best: others use this machine
    std::vector<std::string> left_out;  // "standard: its score matrices take .."
    std::vector<std::string> wrong;     // "torch_sdpa: differs from standard by ..": has no row
};

// `look` says how many GFLOP/s (of decode GB/s) the machine could do just now. On a shared machine that changes by half
// within seconds, so a share of a ceiling that was measured at another time would say more about the neighbours than
// about the method. methods.front() is the baseline that the results of the others are compared with; where it cannot
// be timed they are compared with standard_results(); or all with `reference`, where it is given. `seconds` limits the
// time spent on the point as far as one sample of each method allows; 0 is no limit.
Measurement measure(const Point& point, const std::vector<std::unique_ptr<Method>>& methods,
                    const std::function<double()>& look, int repeats, double seconds,
                    const std::function<Results(const Point&, const Inputs&)>& reference = {});

}  // namespace flashtile::cli::bench
