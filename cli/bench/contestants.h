// contestants.h: the methods that take part in a run of the benchmark.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/method.h"
#include "bench/options.h"

namespace flashtile::cli::bench {

struct Contestants {
    std::vector<std::unique_ptr<Method>> methods;  // the first is standard attention, with which measure() compares
    std::map<std::string, std::string> versions;   // of peers in child processes
};

// Standard attention, flashtile, and those that `options` name. Starts child processes. Throws std::invalid_argument
// where a peer can be timed at none of the points, std::runtime_error where it is not installed.
Contestants contestants(const Options& options, const std::vector<Point>& points);

}  // namespace flashtile::cli::bench
