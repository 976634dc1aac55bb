// run.h: runs a case's forward and backward and keeps the bytes, for tests that compare runs bit for bit.
#pragma once

#include <flashtile/flashtile.hpp>
#include <vector>

#include "conformance/problem_data.h"

namespace flashtile::unit {

inline constexpr isa kIsas[] = {isa::portable, isa::avx2, isa::avx512, isa::avx512_bf16};
inline constexpr dtype kTypes[] = {fp32, fp16, bf16};

inline std::vector<isa> available_isas() {
    std::vector<isa> result;
    for (const isa which : kIsas)
        if (available(which)) result.push_back(which);
    return result;
}

// Results in row-major order of their tensors. Comparing doubles is comparing bits: each came from its own format, and
// NaN, which compares with nothing, appears in no test that compares.
struct Outputs {
    std::vector<double> out, lse, dq, dk, dv, dbias;
    bool operator==(const Outputs&) const = default;
};

inline Outputs values_of(const conformance::ProblemData& data) {
    return {data.out.values(), data.lse.values(), data.dq.values(),
            data.dk.values(),  data.dv.values(),  data.dbias.values()};
}

inline Outputs run(conformance::ProblemData& data, const flashtile::options& o) {
    for (auto* t : data.outputs())
        if (t->present()) t->poison();
    data.forward(o);
    data.backward(o);
    return values_of(data);
}

inline Outputs run(const conformance::Case& problem, isa which) {
    conformance::ProblemData data(problem);
    return run(data, data.options(which));
}

}  // namespace flashtile::unit
