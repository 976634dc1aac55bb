// avx512_bf16_vbmi.cpp: avx512_bf16 where the CPU looks up bytes too (VBMI, which all but the first CPUs with
// vdpbf16ps have): decode's kernels once more, which make bf16 of e4m3 by tables.
#include "cpu/kernels/bind_decode.h"

namespace flashtile::cpu {

Kernels with_byte_tables(const Kernels& kernels) {
    return avx512_bf16_vbmi::with_decode_of_this_unit(kernels);
}

}  // namespace flashtile::cpu
