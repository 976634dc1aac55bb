// function_tensors.h: the tensors that the functions of the conformance list may name, of every type and several
// shapes.
#pragma once

#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "conformance/case.h"
#include "conformance/guarded_tensor.h"
#include "conformance/random_source.h"
#include "oracle/expression.h"

namespace flashtile::conformance {

//   slope     fp32 (heads), 0 to 1/2
//   table     of the inputs' type (heads, 31), normal
//   document  int32 (sequences, the longest length), ascending from 0
//   prefix    int64 (sequences), to the longest k
//   pattern   bool (4, 4, 2), half of it true
struct FunctionTensor {
    const char* name;
    dtype type;
    std::vector<std::int64_t> shape;
};

// Those that the case's functions name.
std::vector<FunctionTensor> function_tensors(const Case& problem);

void fill_function_tensor(const FunctionTensor& what, const Case& problem, RandomSource& random, GuardedTensor& tensor);
oracle::ExpressionTensor as_the_oracle_reads(const FunctionTensor& what, const GuardedTensor& tensor);

}  // namespace flashtile::conformance
