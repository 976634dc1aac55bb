// reciprocal.h: 1 / x on the special function unit, to a unit of the last place: an exact quotient takes ten times as
// long.
#pragma once

namespace flashtile::ptx {

// Not of a subnormal number.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace flashtile::ptx
