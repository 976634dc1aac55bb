// cluster.h: thread blocks of a cluster (sm_90), which run at the same time and reach each other's shared memory.
#pragma once

#include "cuda/kernels/ptx/stress.h"

namespace flashtile::ptx {

// All threads of all thread blocks that have not ended arrive, and then wait for each other.
__device__ __forceinline__ void cluster_arrive() {
    stress();
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    stress();
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// What lies at this shared address in thread block `rank` of the cluster.
__device__ __forceinline__ unsigned address_in(unsigned rank, unsigned address) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ __forceinline__ void mbarrier_arrive_in(unsigned rank, unsigned barrier) {
    stress();
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(rank, barrier)) : "memory");
}

// Copies bytes of the own shared memory to the same or another place in thread block `rank`, whose barrier counts them.
// Their number and both addresses are multiples of 16. As TMA does, this reads what was written before a
// fence_async_proxy().
__device__ __forceinline__ void copy_to(unsigned rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier) {
    stress();
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_in(rank, to)),
                 "r"(from), "r"(bytes), "r"(address_in(rank, barrier))
                 : "memory");
}

}  // namespace flashtile::ptx
