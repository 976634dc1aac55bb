// ring.h: stages of shared memory that a producer fills and consumers empty, in turn; and how a warp arrives at their
// barriers (sm_90).
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/ptx/mbarrier.h"

namespace flashtile {

// A warp arrives for all that its lanes have read or written. One lane does it for all. Under stress every lane arrives
// by itself: racecheck is run that way, and it connects what a lane has read with that lane's arrival only, not through
// __syncwarp with another lane's.
constexpr int kArrivalsOfWarp = kStressSeed != 0 ? 32 : 1;

template <class Arrive>
__device__ __forceinline__ void by_warp(Arrive arrive) {
    if constexpr (kArrivalsOfWarp == 1) __syncwarp();
    if (kArrivalsOfWarp > 1 || lane_id() == 0) arrive();
}
__device__ __forceinline__ void arrive_by_warp(unsigned barrier) {
    by_warp([&] { ptx::mbarrier_arrive(barrier); });
}

// Each stage has a barrier that says it is full and one that says it is empty.
template <int kStages>
struct Ring {
    unsigned full, empty;  // shared addresses of the first stage's barriers
    int stage = 0;
    unsigned phase = 0;

    // Puts the barriers at an address; returns the address behind them.
    __device__ __forceinline__ unsigned place(unsigned address) {
        full = address;
        empty = address + kStages * 8;
        return empty + kStages * 8;
    }
    // A stage is full after `producers` arrivals and the bytes that are expected; it is empty after `consumers`
    // arrivals.
    __device__ __forceinline__ void init(unsigned consumers, unsigned producers = 1) const {
        for (int n = 0; n < kStages; ++n) {
            ptx::mbarrier_init(full + n * 8, producers);
            ptx::mbarrier_init(empty + n * 8, consumers);
        }
    }

    __device__ __forceinline__ unsigned full_barrier() const { return full + stage * 8; }
    __device__ __forceinline__ void wait_full() const { ptx::mbarrier_wait(full_barrier(), phase); }
    // A stage that was never filled is empty.
    __device__ __forceinline__ void wait_empty() const { ptx::mbarrier_wait(empty + stage * 8, phase ^ 1); }
    __device__ __forceinline__ void release() const { ptx::mbarrier_arrive(empty + stage * 8); }
    __device__ __forceinline__ void release_by_warp() const { arrive_by_warp(empty + stage * 8); }
    __device__ __forceinline__ void advance() {
        if (++stage == kStages) stage = 0, phase ^= 1;
    }
};

}  // namespace flashtile
