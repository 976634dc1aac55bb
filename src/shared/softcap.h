// softcap.h: softcap's c tanh(s / c) as a quotient of two polynomials, without a branch and with one reciprocal: what
// the CUDA kernels of 16-bit elements take instead of tanhf. The relative error of the quotient is 1.1e-8 up to
// |s / c| = kSoftcapReach, where tanh is 1 to 1e-7; fp32 adds about 3e-7. It is relative, not absolute, so that a large
// c costs no digits. Included by the host compiler, for its test, and by NVRTC; includes nothing but mask.h.
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr float kSoftcapReach = 8.4f;

struct SoftcapQuotient {
    float numerator, denominator;
};

// For s in [-kSoftcapReach c, kSoftcapReach c]. tanh(x) = x P(x^2) / Q(x^2), both of degree 4: a minimax fit in fp64
// (Lawson's iteration on the relative error), P(0) = Q(0) = 1.
FLASHTILE_DEVICE SoftcapQuotient softcap_quotient(float s, float inverse_c) {
    const float x = s * inverse_c;
    const float y = x * x;
    const float p = 1.0f + y * (0.134195790f + y * (3.54161602e-3f + y * (2.13797521e-5f + y * 1.44578225e-8f)));
    const float q = 1.0f + y * (0.467529029f + y * (2.60514338e-2f + y * (3.36142519e-4f + y * 8.21994831e-7f)));
    return {s * p, q};
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
