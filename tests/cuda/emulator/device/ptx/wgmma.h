// wgmma.h: D = A B, or D += A B where `add` is not 0, for one warpgroup: 64 x N x 16, or x 32 of e4m3, of any N. It
// takes the place of every wgmma_*.h. It stands in for several headers, which `#pragma once` would tell apart by their
// times.
#ifndef EMULATOR_WGMMA_H
#define EMULATOR_WGMMA_H

namespace flashtile::ptx {

template <int kRegisters>
void wgmma_shared_bf16(float (&d)[kRegisters], unsigned long long a, unsigned long long b, int add) {
    emulator_runtime->wgmma({d, nullptr, a, b, kRegisters * 2, add != 0, true, false, false});
}
template <int kRegisters>
void wgmma_shared_fp16(float (&d)[kRegisters], unsigned long long a, unsigned long long b, int add) {
    emulator_runtime->wgmma({d, nullptr, a, b, kRegisters * 2, add != 0, false, false, false});
}

template <int kRegisters>
void wgmma_shared_transposed_bf16(float (&d)[kRegisters], unsigned long long a, unsigned long long b, int add) {
    emulator_runtime->wgmma({d, nullptr, a, b, kRegisters * 2, add != 0, true, true, true});
}
template <int kRegisters>
void wgmma_shared_transposed_fp16(float (&d)[kRegisters], unsigned long long a, unsigned long long b, int add) {
    emulator_runtime->wgmma({d, nullptr, a, b, kRegisters * 2, add != 0, false, true, true});
}

template <int kRegisters>
void wgmma_registers_bf16(float (&d)[kRegisters], const unsigned (&a)[4], unsigned long long b, int add) {
    emulator_runtime->wgmma({d, a, 0, b, kRegisters * 2, add != 0, true, false, true});
}
template <int kRegisters>
void wgmma_registers_fp16(float (&d)[kRegisters], const unsigned (&a)[4], unsigned long long b, int add) {
    emulator_runtime->wgmma({d, a, 0, b, kRegisters * 2, add != 0, false, false, true});
}

template <int kRegisters>
void wgmma_registers_rows_bf16(float (&d)[kRegisters], const unsigned (&a)[4], unsigned long long b, int add) {
    emulator_runtime->wgmma({d, a, 0, b, kRegisters * 2, add != 0, true, false, false});
}
template <int kRegisters>
void wgmma_registers_rows_fp16(float (&d)[kRegisters], const unsigned (&a)[4], unsigned long long b, int add) {
    emulator_runtime->wgmma({d, a, 0, b, kRegisters * 2, add != 0, false, false, false});
}

template <int kRegisters>
void wgmma_shared_e4m3(float (&d)[kRegisters], unsigned long long a, unsigned long long b, int add) {
    emulator_runtime->wgmma({d, nullptr, a, b, kRegisters * 2, add != 0, false, false, false, true});
}
template <int kRegisters>
void wgmma_registers_rows_e4m3(float (&d)[kRegisters], const unsigned (&a)[4], unsigned long long b, int add) {
    emulator_runtime->wgmma({d, a, 0, b, kRegisters * 2, add != 0, false, false, false, true});
}

}  // namespace flashtile::ptx

#endif
