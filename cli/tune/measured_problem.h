// measured_problem.h: the problem that `flashtile tune` measures: random tensors on a device, a pass over them, and
// what it wrote.
#pragma once

#include <functional>

#include "numbers.h"

namespace flashtile::cli::tune {

class MeasuredProblem {
public:
    MeasuredProblem() = default;
    MeasuredProblem(const MeasuredProblem&) = delete;
    MeasuredProblem& operator=(const MeasuredProblem&) = delete;
    virtual ~MeasuredProblem() = default;

    // Runs once on poisoned outputs.
    virtual Results results() = 0;

    // Gives milliseconds of a run; as many runs a call as a sample needs. On a GPU it goes on with the tile that is
    // chosen now; a CPU's calls plan anew.
    virtual std::function<double()> sampler() = 0;
};

// So long a sample is, at least, and so many runs at most.
inline constexpr double kSampleMilliseconds = 4.0, kMostRuns = 50.0;
int runs_of_a_sample(double milliseconds_of_one);

}  // namespace flashtile::cli::tune
