// largest.h: the largest of several values (sm_80).
#pragma once

namespace flashtile::ptx {

// The larger of two; NaN if one is NaN.
__device__ __forceinline__ float larger_or_nan(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}

// Of all lanes of a warp, of numbers that are not negative: these are in the order of their bits.
__device__ __forceinline__ float largest_of_warp(float x) {
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(x)));
}

}  // namespace flashtile::ptx
