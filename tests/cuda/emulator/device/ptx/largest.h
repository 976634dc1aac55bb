// largest.h: the largest of several values.
#pragma once

namespace flashtile::ptx {

inline float larger_or_nan(float x, float y) {
    return x != x || x > y ? x : y;  // y, if that is NaN
}

inline float largest_of_warp(float x) {
    for (int distance = 1; distance < 32; distance *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

}  // namespace flashtile::ptx
