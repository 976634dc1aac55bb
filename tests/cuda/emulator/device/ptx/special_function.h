// special_function.h: the special function unit's approximations, here correct to a unit of the last place. Subnormal
// arguments and results count as 0, as .ftz says.
#pragma once

namespace flashtile::ptx {

inline float flushed(float x) {
    return fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

inline float exp2(float x) {
    return flushed(__builtin_exp2f(flushed(x)));
}

inline float log2(float x) {
    return flushed(__builtin_log2f(flushed(x)));
}

inline float reciprocal(float x) {
    return flushed(1.0f / flushed(x));
}

}  // namespace flashtile::ptx
