// ldmatrix.h: four 8x8 matrices of 16-bit elements from shared memory to the fragments of mma.
#pragma once

namespace flashtile::ptx {

inline void ldmatrix(unsigned (&r)[4], unsigned address) {
    emulator_runtime->ldmatrix(r, address, false);
}

inline void ldmatrix_trans(unsigned (&r)[4], unsigned address) {
    emulator_runtime->ldmatrix(r, address, true);
}

}  // namespace flashtile::ptx
