// permute.h: bytes of a word in any order (prmt). A selector's digit above 7 takes the sign of byte `digit - 8` for all
// of the result's byte, which CUDA's own __byte_perm leaves out.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ unsigned permute(unsigned x, unsigned selector) {
    unsigned y;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "r"(selector));
    return y;
}

}  // namespace flashtile::ptx
