// schedule.h: which of the measurements of `bench paper` still fit into the time that is left, and how long each may
// take, judged by how fast the methods were at those before.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flashtile::cli {

struct Work {
    double flops;
    std::string kind;  // what is alike is about as fast
};

// What a measurement takes at least: so many calls of every method, and seconds of each method beside them.
struct LeastMeasurement {
    double calls, overhead_seconds;
};

class Schedule {
public:
    // In the order in which they will be measured: the cheapest first, or those that matter most.
    Schedule(std::vector<Work> works, LeastMeasurement least) : works_(std::move(works)), least_(least) {}

    // One call of every method at works[n] took so long in all.
    void measured(std::size_t n, double seconds, std::size_t methods);

    // Seconds for works[next], where `left` seconds are left for it and for those after it: what is left after the
    // least that those that still fit need goes to all of them alike. Empty: it does not fit.
    std::optional<double> share(std::size_t next, double left) const;

private:
    struct Known {
        std::string kind;
        double seconds_per_flop;
    };

    // The seconds of the shortest measurement that is one.
    double least(const Work& work) const;

    std::vector<Work> works_;
    LeastMeasurement least_;
    std::vector<Known> known_;  // the latest last
    std::size_t methods_ = 1;
};

}  // namespace flashtile::cli
