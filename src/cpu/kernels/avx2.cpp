// avx2.cpp: AVX2 with FMA and F16C: eight lanes, 16 registers.
#include "cpu/kernels/bind.h"

namespace flashtile::cpu {

const Kernels& avx2_kernels() {
    static constexpr Kernels kernels = avx2::make_kernels(FLASHTILE_ISA_AVX2);
    return kernels;
}

}  // namespace flashtile::cpu
