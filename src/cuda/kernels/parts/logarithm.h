// logarithm.h: log of a float to about 30 bits, a third of the instructions of log in fp64, for LSE.
#pragma once

namespace flashtile {

// x > 0, not subnormal; infinity and NaN come back as they are.
__device__ __forceinline__ double logarithm(float x) {
    if (!(x < __int_as_float(0x7f800000))) return static_cast<double>(x);
    // x = 2^e f, f in [sqrt(1/2), sqrt(2))
    constexpr int kRootOfHalf = 0x3f3504f3;
    const int bits = __float_as_int(x), e = (bits - kRootOfHalf) >> 23;
    const float f = __int_as_float(bits - (e << 23));
    // log f = 2 artanh z, z = (f - 1) / (f + 1), |z| < 0.172; the quotient by one step of Newton's method
    const double d = static_cast<double>(f) + 1.0;
    const double guess = static_cast<double>(1.0f / (f + 1.0f));
    const double z = (static_cast<double>(f) - 1.0) * (guess * fma(-d, guess, 2.0)), z2 = z * z;
    const double series = fma(fma(fma(fma(z2, 1.0 / 9, 1.0 / 7), z2, 1.0 / 5), z2, 1.0 / 3), z2, 1.0);
    return fma(static_cast<double>(e), 0.69314718055994531, 2.0 * z * series);
}

}  // namespace flashtile
