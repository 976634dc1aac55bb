// reference.h: what a case's results are held against, from the oracle alone: exact values and allowed errors. They are
// the same on every target, and take longer than the library's own run.
#pragma once

#include <string>
#include <vector>

#include "conformance/case.h"
#include "oracle/attention.h"
#include "oracle/tolerance.h"

namespace flashtile::conformance {

// Of one tensor.
struct Expected {
    std::vector<bool> owned;    // which of its elements belong to a sequence
    std::vector<double> exact;  // the values of those
    oracle::Error allowed;
};

struct Reference {
    Reference(const Case& problem, oracle::Pass pass);

    Expected out;
    Expected lse;  // in the oracle's order, (row, head)
    Expected dq, dk, dv, dsinks, dbias;
    std::vector<Expected> dtensors;   // of function_tensors of floats that the score function may name
    std::vector<std::string> faults;  // of the case: with them it shows nothing
};

// The values whose flag is set.
std::vector<double> only(const std::vector<double>& values, const std::vector<bool>& flags);

}  // namespace flashtile::conformance
