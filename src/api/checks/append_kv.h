// append_kv.h: the checks of flashtile_append_kv. Those of values that lie in the tensors (lengths, pages, slots,
// positions) are in append_values.cpp.
#pragma once

#include "core/append_problem.h"

namespace flashtile::api {

struct AppendCall {
    AppendProblem problem;
    AppendOperands operands;
    Execution execution;
};

AppendCall validate_append(const flashtile_options* options, const flashtile_append_tensors* tensors);

// Where the host can read them: on the CPU, and on request.
void check_append_values(const AppendCall& call);

}  // namespace flashtile::api
