// amx.cpp: AVX-512 with the tile unit of AMX: bf16 and fp16 problems multiply tiles, the rest is as avx512.
// (Not as avx512_bf16: where there are tiles, vdpbf16ps has been slower than an fp32 FMA.)
#include "cpu/kernels/bind.h"

namespace flashtile::cpu {

const Kernels& amx_kernels() {
    static constexpr Kernels kernels = amx::make_kernels(FLASHTILE_ISA_AMX);
    return kernels;
}

}  // namespace flashtile::cpu
