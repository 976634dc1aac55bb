// schedule.cpp: see schedule.h.
#include "schedule.h"

#include <algorithm>

namespace flashtile::cli {

void Schedule::measured(std::size_t n, double seconds, std::size_t methods) {
    const Work& work = works_.at(n);
    known_.push_back({work.kind, seconds / work.flops});
    methods_ = methods;
}

double Schedule::least(const Work& work) const {
    double slowest = 0.0;
    for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
        if (known->kind == work.kind) {
            slowest = known->seconds_per_flop;
            break;
        }
        slowest = std::max(slowest, known->seconds_per_flop);
    }
    return least_.overhead_seconds * static_cast<double>(methods_) + least_.calls * slowest * work.flops;
}

std::optional<double> Schedule::share(std::size_t next, double left) const {
    const double needed = least(works_.at(next));
    if (needed > left) return std::nullopt;
    double all = 0.0;
    for (std::size_t n = next; n < works_.size() && all + least(works_[n]) <= left; ++n) all += least(works_[n]);
    return left * needed / all;
}

}  // namespace flashtile::cli
