// ldmatrix.h: four 8x8 matrices of 16-bit elements from shared memory to the fragments of mma; lane n gives the address
// of row n % 8 of matrix n / 8.
#pragma once

namespace flashtile::ptx {

__device__ __forceinline__ void ldmatrix(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// Each matrix transposed.
__device__ __forceinline__ void ldmatrix_trans(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

}  // namespace flashtile::ptx
