// permute.h: bytes of a word in any order (prmt). A selector's digit above 7 fills the result's byte with the sign of
// byte `digit - 8`; CUDA's own __byte_perm does not offer that.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ unsigned permute(unsigned x, unsigned selector) {
    unsigned y;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "r"(selector));
    return y;
}

}  // namespace flashtile::ptx
