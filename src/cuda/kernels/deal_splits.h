// deal_splits.h: how the splits of all sequences are numbered where lengths lie in device memory, so that the thread
// blocks of split_forward_sm80 share those that there are, however unequal the sequences. The host reads no length. One
// thread block adds up the units of work (key_split.h) before each sequence.
#pragma once

#include "cuda/kernels/parts/schedule/key_split.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

template <KernelConfig config>
__device__ __forceinline__ void deal_splits(const KernelParams& p) {
    constexpr unsigned kThreads = config.warps * 32;
    unsigned* const sums = reinterpret_cast<unsigned*>(shared_memory);
    const auto units_of = [&](Index b) {
        return SequenceUnits::of<config>(p, Sequence::make<config>(p, b, 0)).count();
    };
    // a thread has some neighbouring sequences
    const Index each = (p.batch + kThreads - 1) / kThreads;
    const Index first = smaller(threadIdx.x * each, Index{p.batch}), end = smaller(first + each, Index{p.batch});
    unsigned own = 0;
    for (Index b = first; b < end; ++b) own += units_of(b);
    sums[threadIdx.x] = own;
    for (unsigned step = 1; step < kThreads; step *= 2) {
        __syncthreads();  // all sums of the step before are written
        const unsigned before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();  // and read
        sums[threadIdx.x] += before;
    }
    unsigned next = sums[threadIdx.x] - own;
    for (Index b = first; b < end; ++b) {
        p.ws_first_unit[b] = next;
        next += units_of(b);
    }
    if (threadIdx.x != kThreads - 1) return;
    p.ws_first_unit[p.batch] = sums[threadIdx.x];
    *p.ws_ticket = 0;
}

}  // namespace flashtile
