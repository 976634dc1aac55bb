// portable.cpp: GCC/clang vector extensions at four lanes: any CPU, AArch64 included.
#include "cpu/kernels/bind.h"

namespace flashtile::cpu {

const Kernels& portable_kernels() {
    static constexpr Kernels kernels = portable::make_kernels(FLASHTILE_ISA_PORTABLE);
    return kernels;
}

}  // namespace flashtile::cpu
