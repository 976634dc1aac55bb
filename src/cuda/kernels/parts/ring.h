// ring.h: stages of shared memory that a producer fills and consumers empty, in turn.
#pragma once

namespace flashtile {

// A ring of stages, each with a barrier that says it is full and one that says it is empty.
template <int kStages>
struct Ring {
    unsigned full, empty;  // shared addresses of the first
    int stage = 0;
    unsigned phase = 0;

    __device__ __forceinline__ unsigned full_barrier() const { return full + stage * 8; }
    __device__ __forceinline__ unsigned empty_barrier() const { return empty + stage * 8; }
    __device__ __forceinline__ void advance() {
        if (++stage == kStages) stage = 0, phase ^= 1;
    }
};

}  // namespace flashtile
