// shared_memory.h: ordinary reads and writes of shared memory by address.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ void store_shared(unsigned address, unsigned x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared(unsigned address, const uint4& x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ __forceinline__ unsigned load_shared_word(unsigned address) {
    unsigned x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ float2 load_shared_pair(unsigned address) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ uint4 load_shared(unsigned address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

}  // namespace flashtile::ptx
