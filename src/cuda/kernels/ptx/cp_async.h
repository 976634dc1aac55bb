// cp_async.h: copies from global to shared memory that run while the thread goes on (sm_80).
#pragma once

namespace flashtile::ptx {

// Copies kBytes, or writes as many zeros where `valid` is false (nothing is read then).
template <int kBytes>
__device__ __forceinline__ void cp_async(unsigned to, const void* from, bool valid) {
    const int bytes = valid ? kBytes : 0;
    if constexpr (kBytes == 16)  // It bypasses L1, since a thread block reads a tile once.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes));
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;");
}

// Waits until at most kPending of this thread's latest groups are still on their way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace flashtile::ptx
