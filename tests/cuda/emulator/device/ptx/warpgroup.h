// warpgroup.h: what the 128 threads of a warpgroup do together.
#pragma once

#include "cuda/kernels/ptx/stress.h"

namespace flashtile::ptx {

inline void wgmma_fence() {}

inline void wgmma_commit() {
    emulator_runtime->wgmma_commit();
}

template <int kPending>
inline void wgmma_wait() {
    emulator_runtime->wgmma_wait(kPending);
}

template <int kRegisters>
inline void registers_give_back() {}
template <int kRegisters>
inline void registers_take() {}

inline void named_barrier(unsigned number, unsigned threads) {
    stress();
    emulator_runtime->barrier(number, threads, true);
}

inline bool named_barrier_all(unsigned number, unsigned threads, bool mine) {
    stress();
    return emulator_runtime->barrier(number, threads, mine);
}

inline void named_barrier_arrive(unsigned number, unsigned threads) {
    stress();
    emulator_runtime->barrier_arrive(number, threads);
}

// Registers are the memory of their variables here, and stay where they are.
inline void pin(float& x) {
    asm volatile("" : "+m"(x)::"memory");
}

}  // namespace flashtile::ptx
