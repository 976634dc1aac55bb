// counted.cpp: the kernels of src/cpu/kernels, compiled once more with counters and without arithmetic.
#include "cpu/kernels/bind.h"

#include "cpu/counted/counted.h"

namespace flashtile::cpu {

const Kernels& counted_kernels() {
    static constexpr Kernels kernels = counted::make_kernels(FLASHTILE_ISA_AUTO);
    return kernels;
}

}  // namespace flashtile::cpu
