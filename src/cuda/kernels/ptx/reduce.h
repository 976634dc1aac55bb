// reduce.h: additions to global memory that return nothing.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ void red_add(float* to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

// Four at once, 16-byte aligned (sm_90).
__device__ __forceinline__ void red_add4(float* to, const float (&x)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
                 "f"(x[3])
                 : "memory");
}

}  // namespace flashtile::ptx
