// avx512.cpp: AVX-512 (F, BW, CD, DQ, VL): sixteen lanes, 32 registers.
#include "cpu/kernels/bind.h"

namespace flashtile::cpu {

const Kernels& avx512_kernels() {
    static constexpr Kernels kernels = avx512::make_kernels(FLASHTILE_ISA_AVX512);
    return kernels;
}

}  // namespace flashtile::cpu
