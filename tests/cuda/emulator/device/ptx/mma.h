// mma.h: C += A B on one warp's tensor cores, 16 x 8 x 16.
#pragma once

namespace flashtile::ptx {

inline void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    emulator_runtime->mma(c, a, b0, b1, true, false);
}
inline void mma_fp16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    emulator_runtime->mma(c, a, b0, b1, false, false);
}
inline void mma_bf16_fresh(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    emulator_runtime->mma(c, a, b0, b1, true, true);
}
inline void mma_fp16_fresh(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    emulator_runtime->mma(c, a, b0, b1, false, true);
}

}  // namespace flashtile::ptx
