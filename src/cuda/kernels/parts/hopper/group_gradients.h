// group_gradients.h: dK and dV where two thread blocks of a cluster share the query heads of a group. Each has the sums
// over its own heads. At the end it sends one of the two to the other, and adds what it gets to the one that it stores:
// the first thread block stores dK, the second one dV.
#pragma once

#include "cuda/kernels/parts/hopper/named_barriers.h"
#include "cuda/kernels/parts/hopper/wgmma_product.h"
#include "cuda/kernels/ptx/cluster.h"
#include "cuda/kernels/ptx/mbarrier.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/tma.h"

namespace flashtile {

struct GroupGradients {
    unsigned sent, come;  // shared addresses: what is sent lies where Q and dO lay, what comes where K and V lay
    unsigned ready, received, done;  // barriers, which the other thread block's threads or copies complete

    static constexpr int kBytesBarriers = 3 * 8;
    static constexpr unsigned kThreads = barriers::kTwoWarpgroups;

    __device__ __forceinline__ GroupGradients(unsigned to_send, unsigned to_come, unsigned barriers)
        : sent(to_send), come(to_come), ready(barriers), received(ready + 8), done(received + 8) {}

    __device__ __forceinline__ static unsigned rank() { return blockIdx.x % 2; }
    __device__ __forceinline__ static unsigned other() { return rank() ^ 1; }
    __device__ __forceinline__ static unsigned place(unsigned tile, int t) {
        return tile + (t * kThreads + threadIdx.x) * 16;
    }

    __device__ __forceinline__ void init_barriers() const {
        ptx::mbarrier_init(ready, 1);
        ptx::mbarrier_init(received, 1);
        ptx::mbarrier_init(done, 1);
    }

    // What this thread block stores takes dK's registers. Both consumers call this when neither reads K, V, Q and dO
    // any more, and may write there afterwards. Elements are chosen one by one: where whole fragments were, in two
    // branches, ptxas moved the accumulators and serialised the products before.
    template <int T>
    __device__ __forceinline__ void exchange(Fragments<1, T>& dk, const Fragments<1, T>& dv) const {
        constexpr unsigned kBytes = T * kThreads * 16;
        const bool keeps_dk = rank() == 0;
#pragma unroll
        for (int t = 0; t < T; ++t) {
            unsigned given[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                given[e] = __float_as_uint(keeps_dk ? dv.c[0][t][e] : dk.c[0][t][e]);
                dk.c[0][t][e] = keeps_dk ? dk.c[0][t][e] : dv.c[0][t][e];
            }
            ptx::store_shared(place(sent, t), make_uint4(given[0], given[1], given[2], given[3]));
        }
        ptx::fence_async_proxy();
        ptx::named_barrier(barriers::kBoth, kThreads);  // all of it is written
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_in(other(), ready);
            ptx::mbarrier_arrive_expect(received, kBytes);
            ptx::mbarrier_wait(ready, 0);  // the other one's K and V have been read, too
            ptx::copy_to(other(), come, sent, kBytes, received);
        }
        ptx::mbarrier_wait(received, 0);
#pragma unroll
        for (int t = 0; t < T; ++t) {
            const uint4 more = ptx::load_shared(place(come, t));
            float(&x)[4] = dk.c[0][t];
            x[0] += __uint_as_float(more.x);
            x[1] += __uint_as_float(more.y);
            x[2] += __uint_as_float(more.z);
            x[3] += __uint_as_float(more.w);
        }
        if (threadIdx.x == 0) ptx::mbarrier_arrive_in(other(), done);
        ptx::named_barrier(barriers::kBoth, kThreads);  // all of it is read
    }

    // A thread block may not end before what it sent has been copied out of its shared memory.
    __device__ __forceinline__ void finish() const {
        if (threadIdx.x == 0) ptx::mbarrier_wait(done, 0);
    }
};

}  // namespace flashtile
