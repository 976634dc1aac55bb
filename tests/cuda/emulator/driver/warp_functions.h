// warp_functions.h: what a warp's lanes do together: exchange registers, load and store fragments, multiply.
#pragma once

namespace emulator {

void sync_warp(unsigned mask);
unsigned shuffle(unsigned mask, unsigned x, unsigned from_lane);
unsigned ballot(unsigned mask, bool x);
void ldmatrix(unsigned (&r)[4], unsigned address, bool transposed);
void stmatrix(unsigned address, const unsigned (&words)[4]);
void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bool bf16, bool fresh);

}  // namespace emulator
