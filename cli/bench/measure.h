// measure.h: timing every method at a point so that the comparison is fair: same data, same run, results compared
// first, samples of the methods alternating in an order that rotates, medians.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/method.h"

namespace flashtile::cli::bench {

struct Row {
    std::string method;
    std::string isa;
    Point point;
    double ms = 0.0;  // median
    double gflops = 0.0;
    double ceiling_share = 0.0;
};

struct Measurement {
    std::vector<Row> rows;
    std::vector<std::string> left_out;  // "standard: its score matrices take .."
    std::vector<std::string> wrong;     // "torch_sdpa: differs from standard by ..": has no row
};

double median(std::vector<double> values);

// methods.front() is the baseline that the results of the others are compared with; where it cannot be timed they are
// compared with standard_results(). `seconds` limits the time spent on the point as far as one sample of each method
// allows; 0 is no limit.
Measurement measure(const Point& point, const std::vector<std::unique_ptr<Method>>& methods, double ceiling_gflops,
                    int repeats, double seconds);

}  // namespace flashtile::cli::bench
