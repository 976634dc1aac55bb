// warpgroup.h: what the 128 threads of a warpgroup do together (sm_90a): order matrix products, change the number of
// registers, meet at named barriers.
#pragma once

#include "cuda/kernels/ptx/stress.h"

namespace flashtile::ptx {

// Must come before the first product, and after any ordinary write to registers that products read or add to.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending of the latest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// From here on each thread of this warpgroup has kRegisters registers. The kernel must say how many it starts with.
template <int kRegisters>
__device__ __forceinline__ void registers_give_back() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Waits at barrier `number` (1 to 15) for `threads` threads.
__device__ __forceinline__ void named_barrier(unsigned number, unsigned threads) {
    stress();
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// The same; returns whether `mine` is true for all of them.
__device__ __forceinline__ bool named_barrier_all(unsigned number, unsigned threads, bool mine) {
    stress();
    unsigned all;
    asm volatile(
        "{ .reg .pred mine, all; setp.ne.u32 mine, %3, 0; bar.red.and.pred all, %1, %2, mine; selp.u32 %0, 1, 0, all; }"
        : "=r"(all)
        : "r"(number), "r"(threads), "r"(static_cast<unsigned>(mine))
        : "memory");
    return all != 0;
}

// Counts the calling threads among those that `number` waits for, and goes on.
__device__ __forceinline__ void named_barrier_arrive(unsigned number, unsigned threads) {
    stress();
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Keeps the compiler from moving uses of a register across this place.
__device__ __forceinline__ void pin(float& x) {
    asm volatile("" : "+f"(x)::"memory");
}

}  // namespace flashtile::ptx
