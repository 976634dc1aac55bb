// tma.h: TMA copies (sm_90) between shared memory and a box of a tensor that a map in the kernel's parameters
// describes.
#pragma once

namespace flashtile::ptx {

// Fetches a tensor's map before it is first used, since a launch's parameters are far away.
__device__ __forceinline__ void tma_prefetch_map(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Coordinates go from the innermost dimension out. What lies outside the tensor arrives as zero, and its bytes count.
__device__ __forceinline__ void tma_load(unsigned to, const void* map, unsigned barrier, int x0, int x1, int x2,
                                         int x3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
        : "memory");
}

__device__ __forceinline__ void tma_load(unsigned to, const void* map, unsigned barrier, int x0, int x1, int x2, int x3,
                                         int x4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
        : "memory");
}

// Loads contiguous bytes. Their number and both addresses are multiples of 16.
__device__ __forceinline__ void tma_load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Stores a box. What lies outside the tensor is left out. The store belongs to the group that this thread commits next.
__device__ __forceinline__ void tma_store(unsigned from, const void* map, int x0, int x1, int x2, int x3) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}
__device__ __forceinline__ void tma_store(unsigned from, const void* map, int x0, int x1, int x2, int x3, int x4) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                 : "memory");
}
__device__ __forceinline__ void tma_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until TMA has read all stores that this thread committed; until it has also written them.
__device__ __forceinline__ void tma_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void tma_wait_written() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Must come before TMA or wgmma reads shared memory that this thread wrote by ordinary stores.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace flashtile::ptx
