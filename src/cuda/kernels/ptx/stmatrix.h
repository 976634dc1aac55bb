// stmatrix.h: four 8x8 matrices of 16-bit values from a warp's registers to shared memory (sm_90), as accumulators hold
// them.
#pragma once

namespace flashtile::ptx {

// Lane n brings the address of row n % 8 of matrix n / 8; words[m] are this lane's two values of matrix m.
__device__ __forceinline__ void stmatrix_x4(unsigned address, const unsigned (&words)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

}  // namespace flashtile::ptx
