// permute.h: bytes of a word in any order (prmt). A selector's digit above 7 fills the result's byte with the sign of
// byte `digit - 8`; CUDA's own __byte_perm does not offer that.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ unsigned permute(unsigned x, unsigned selector) {
    unsigned y;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "r"(selector));
    return y;
}

// The same of two words; digits from 4 on are bytes of the second.
__device__ __forceinline__ unsigned permute(unsigned x, unsigned y, unsigned selector) {
    unsigned z;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(selector));
    return z;
}

}  // namespace flashtile::ptx
