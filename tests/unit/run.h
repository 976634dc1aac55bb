// run.h: runs a case's forward and backward and keeps the bytes, for tests that compare runs bit for bit on every
// instruction set.
#pragma once

#include <gtest/gtest.h>

#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "conformance/problem_data.h"
#include "conformance/target.h"

namespace flashtile::unit {

using conformance::kIsas;
inline constexpr dtype kTypes[] = {fp32, fp16, bf16};

// Results in row-major order of their tensors. Equal doubles mean equal bits, since each double comes from a number of
// the tensor's type. NaN equals nothing, and no test that compares has any.
struct Outputs {
    std::vector<double> out, lse, dq, dk, dv, dbias;
    std::vector<std::vector<double>> dtensors;
    bool operator==(const Outputs&) const = default;
};

inline void expect_same_bits(const Outputs& got, const Outputs& expected) {
    EXPECT_EQ(got.out, expected.out);
    EXPECT_EQ(got.lse, expected.lse);
    EXPECT_EQ(got.dq, expected.dq);
    EXPECT_EQ(got.dk, expected.dk);
    EXPECT_EQ(got.dv, expected.dv);
    EXPECT_EQ(got.dbias, expected.dbias);
    EXPECT_EQ(got.dtensors, expected.dtensors);
}

inline void poison_outputs(conformance::ProblemData& data) {
    for (conformance::GuardedTensor* t : data.outputs())
        if (t->present()) t->poison();
}

inline Outputs outputs_of(const conformance::ProblemData& data) {
    Outputs all{data.out.values(),
                data.lse.values(),
                data.dq.values(),
                data.dk.values(),
                data.dv.values(),
                data.dbias.values(),
                {}};
    for (const auto& gradient : data.dtensors) all.dtensors.push_back(gradient.values());
    return all;
}

inline Outputs run(conformance::ProblemData& data, const flashtile::options& o) {
    poison_outputs(data);
    data.forward(o);
    data.backward(o);
    return outputs_of(data);
}

inline Outputs run(const conformance::Case& problem, isa which) {
    conformance::ProblemData data(problem);
    return run(data, data.options(which));
}

}  // namespace flashtile::unit
