// quad_transpose.h: an exchange between the four lanes that share a row of accumulators.
#pragma once

#include "cuda/kernels/parts/common/element.h"

namespace flashtile {

// Transposes a 4 x 4 matrix. Before, lane t of a quad holds column t in `words`; afterwards it holds row t.
__device__ __forceinline__ void transpose_in_quad(unsigned (&words)[4]) {
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        const bool upper = (lane_id() & distance) != 0;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            if ((n & distance) != 0) continue;
            unsigned &kept = words[n], &other = words[n + distance];
            const unsigned come = __shfl_xor_sync(~0u, upper ? kept : other, distance);
            (upper ? kept : other) = come;
        }
    }
}

}  // namespace flashtile
