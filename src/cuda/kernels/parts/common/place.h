// place.h: which rows and columns of the scores a lane's accumulators hold.
#pragma once

#include "cuda/kernels/parts/common/element.h"

namespace flashtile {

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

// One warp's place in the matrix of scores: its first row and its first column.
struct Place {
    int i0, j0;

    // Rows and columns of this lane's accumulators, relative to i0 and j0.
    __device__ static __forceinline__ int row(int m, int e) {
        return m * 16 + static_cast<int>(lane_id() / 4) + e / 2 * 8;
    }
    __device__ static __forceinline__ int column(int n, int e) {
        return n * 8 + static_cast<int>(lane_id() % 4) * 2 + e % 2;
    }
};

// Calls body(m, n, e) for every accumulator of this lane.
template <int MT, int NT, class Body>
__device__ __forceinline__ void each_score(Body body) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) body(m, n, e);
}

}  // namespace flashtile
