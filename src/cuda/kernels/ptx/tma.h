// tma.h: the copy engine (sm_90): a box of a tensor that a map in the kernel's parameters describes, to shared memory.
#pragma once

namespace flashtile::ptx {

// Coordinates from the innermost dimension out. What lies outside the tensor arrives as zero, and counts as bytes.
__device__ __forceinline__ void tma_load(unsigned to, const void* map, unsigned barrier, int x0, int x1, int x2,
                                         int x3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
        : "memory");
}

// Bytes that lie in a row, a multiple of 16 and so aligned.
__device__ __forceinline__ void tma_load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Before the copy engine or wgmma reads shared memory that this thread wrote by ordinary stores.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace flashtile::ptx
