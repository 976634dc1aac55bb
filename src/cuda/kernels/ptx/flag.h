// flag.h: words in global memory with which thread blocks tell each other how far they are.
#pragma once

#include "cuda/kernels/ptx/stress.h"

namespace flashtile::ptx {

__device__ __forceinline__ unsigned load_acquire(const unsigned* word) {
    stress();
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
    return x;
}

__device__ __forceinline__ void store_release(unsigned* word, unsigned x) {
    stress();
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(x) : "memory");
}

}  // namespace flashtile::ptx
