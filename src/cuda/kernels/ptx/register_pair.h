// register_pair.h: two numbers in two neighbouring registers, the first one even.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ unsigned long long join(float first, float second) {
    unsigned long long both;
    asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "f"(first), "f"(second));
    return both;
}

__device__ __forceinline__ float2 split(unsigned long long both) {
    float2 x;
    asm("mov.b64 {%0, %1}, %2;" : "=f"(x.x), "=f"(x.y) : "l"(both));
    return x;
}

}  // namespace flashtile::ptx
