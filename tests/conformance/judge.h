// judge.h: runs a case on the library and holds the result against the oracle.
#pragma once

#include <string>
#include <vector>

#include "conformance/case.h"
#include "conformance/reference.h"
#include "conformance/target.h"
#include "oracle/tolerance.h"

namespace flashtile::conformance {

struct Comparison {
    std::string tensor;
    oracle::Error error;
    oracle::Error allowed;

    bool ok() const { return error.max <= allowed.max && error.rms <= allowed.rms; }
    double share() const;  // of the allowed error that was used; above 1 is a failure
};

struct Verdict {
    std::vector<Comparison> comparisons;
    std::vector<std::string> faults;  // beside errors: a stray write, a changed input, another ISA than was asked for
    std::string ran;                  // what the library says it ran on
    std::string refused;              // why a pass was not run: heads too wide for this GPU; else ""

    bool ok() const;
    std::string to_string() const;  // a line each
};

enum class Passes { forward, both };

// Computes the case's reference once, for as many targets as it is run on.
class Judge {
public:
    explicit Judge(const Case& problem, Passes passes = Passes::both);

    // Throws flashtile::error where the library refuses the case.
    Verdict run_on(const Target& target) const;

private:
    Case problem_;
    oracle::Pass pass_;
    Reference reference_;
};

// The same for one target.
Verdict judge(const Case& problem, const Target& target, Passes passes = Passes::both);

}  // namespace flashtile::conformance
