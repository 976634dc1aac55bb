// logarithm.h: log of a float, for LSE. Its error is at most 4e-8, and log of 1 is exactly 0. It takes about as long as
// the last product, beside which it runs; in fp64 it would take four times as long.
#pragma once

#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

// x must be positive and not subnormal. Infinity and NaN are returned as they are.
__device__ __forceinline__ double logarithm(float x) {
    if (!(x < __int_as_float(0x7f800000))) return static_cast<double>(x);
    // x = 2^e f, f in [sqrt(1/2), sqrt(2))
    constexpr int kRootOfHalf = 0x3f3504f3;
    const int bits = __float_as_int(x), e = (bits - kRootOfHalf) >> 23;
    const float f = __int_as_float(bits - (e << 23));
    // log f = 2 artanh z, z = (f - 1) / (f + 1), |z| < 0.172; the quotient by one step of Newton's method, with what f
    // + 1 lost
    const float d = f + 1.0f, lost = f - (d - 1.0f), inverse = ptx::reciprocal(d), guess = (f - 1.0f) * inverse;
    const float z = fmaf(fmaf(-lost, guess, fmaf(-d, guess, f - 1.0f)), inverse, guess), z2 = z * z;
    const float series = fmaf(fmaf(fmaf(z2, 1.0f / 9, 1.0f / 7), z2, 1.0f / 5), z2, 1.0f / 3) * z2;
    return fma(static_cast<double>(e), 0.69314718055994531, static_cast<double>(fmaf(2.0f * z, series, 2.0f * z)));
}

}  // namespace flashtile
