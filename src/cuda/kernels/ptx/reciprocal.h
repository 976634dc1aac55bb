// reciprocal.h: 1 / x on the special function unit, to about 2^-23; 0 where that would be denormal.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace flashtile::ptx
