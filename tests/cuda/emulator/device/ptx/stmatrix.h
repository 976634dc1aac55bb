// stmatrix.h: four 8x8 matrices of 16-bit values from a warp's registers to shared memory.
#pragma once

namespace flashtile::ptx {

inline void stmatrix_x4(unsigned address, const unsigned (&words)[4]) {
    emulator_runtime->stmatrix(address, words);
}

}  // namespace flashtile::ptx
