// device_operands.h: a tensor and a list of lengths as kernels get them. In FLASHTILE_TARGET, since each instruction
// set has these types of its own.
#pragma once

#include "core/problem.h"
#include "shared/kernel_params.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline DeviceTensor tensor_of(const Operand& x) {
    return {x.data, x.stride_batch, x.stride_row, x.stride_head, x.stride_col};
}

inline DeviceLengths lengths_of(const Lengths& x) {
    return {x.data, x.wide ? 1 : 0};
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
