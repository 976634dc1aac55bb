// special_function.h: approximations by the special function unit, exact to about a unit of the last place. Without
// .ftz, extra instructions would scale small arguments.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Of a normal number, to about 2^-22.
__device__ __forceinline__ float log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Of a normal number; an exact quotient takes ten times as long.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace flashtile::ptx
