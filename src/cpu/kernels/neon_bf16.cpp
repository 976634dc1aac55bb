// neon_bf16.cpp: AArch64 with BFDOT: bf16 problems multiply pairs, the others as portable does.
#include "cpu/kernels/bind.h"

namespace flashtile::cpu {

const Kernels& neon_bf16_kernels() {
    static constexpr Kernels kernels = neon_bf16::make_kernels(FLASHTILE_ISA_NEON_BF16);
    return kernels;
}

}  // namespace flashtile::cpu
