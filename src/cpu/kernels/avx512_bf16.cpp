// avx512_bf16.cpp: AVX-512 with vdpbf16ps: bf16 problems multiply pairs, the others as avx512 does.
#include "cpu/kernels/bind.h"

namespace flashtile::cpu {

const Kernels& avx512_bf16_kernels() {
    static constexpr Kernels kernels = avx512_bf16::make_kernels(FLASHTILE_ISA_AVX512_BF16);
    return kernels;
}

}  // namespace flashtile::cpu
