// rounding.h: products that are rounded once and for themselves, whatever stands behind them: compilers for GPUs fuse a
// product with a sum where they may. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// One rounding each, never two of them fused into one.
FLASHTILE_DEVICE float rounded_product(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}
FLASHTILE_DEVICE float fused_product(float a, float b, float c) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
