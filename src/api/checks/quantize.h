// quantize.h: the checks of flashtile_quantize and flashtile_dequantize.
#pragma once

#include "core/problem.h"
#include "core/quantize_problem.h"

namespace flashtile::api {

struct QuantizeCall {
    QuantizeProblem problem;
    QuantizeOperands operands;
    Execution execution;
};

QuantizeCall validate_quantize(const flashtile_options* options, const flashtile_quantize_tensors* tensors);
QuantizeCall validate_dequantize(const flashtile_options* options, const flashtile_quantize_tensors* tensors);

}  // namespace flashtile::api
