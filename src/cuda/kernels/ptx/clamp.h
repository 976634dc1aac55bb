// clamp.h: to [-limit, limit] in two instructions; a NaN stays, which fminf and fmaxf would replace.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ float clamp(float x, float limit) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(y), "f"(-limit));
    return y;
}

}  // namespace flashtile::ptx
