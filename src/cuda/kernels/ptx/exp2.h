// exp2.h: 2^x on the special function unit; without .ftz it would scale small arguments by extra instructions.
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

}  // namespace flashtile::ptx
