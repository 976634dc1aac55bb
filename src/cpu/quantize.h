// quantize.h: e4m3 numbers and scales of a tensor, and the tensor of these, by an instruction set's kernels on blocks
// of rows.
#pragma once

#include "cpu/kernels.h"

namespace flashtile::cpu {

void quantize(const Kernels& kernels, const QuantizeProblem& p, const QuantizeOperands& x, const Execution& execution,
              std::int32_t threads);
void dequantize(const Kernels& kernels, const QuantizeProblem& p, const QuantizeOperands& x, const Execution& execution,
                std::int32_t threads);

}  // namespace flashtile::cpu
