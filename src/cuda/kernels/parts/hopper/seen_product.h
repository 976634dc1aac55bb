// seen_product.h: O += P V that leaves out rows of V whose P is 0. Such a row may hold NaN where a mask hides a key
// from all queries, and on the tensor cores 0 * NaN would be NaN. The product is slow, and only the careful pass over a
// tile uses it (sm_90).
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/hopper/swizzled_tile.h"
#include "cuda/kernels/ptx/shared_memory.h"

namespace flashtile {

// P has kRowsB columns; V [kRowsB][columns of O] lies as TMA leaves it.
template <Element kElement, int kRowsB, int NT, int OT>
__device__ __forceinline__ void add_seen(Fragments<1, OT>& o, const typename Math<kElement>::template Left<1, NT>& p,
                                         unsigned v) {
    using M = Math<kElement>;
#pragma unroll 1
    for (int key = 0; key < kRowsB; ++key) {
        float weight[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned pair = 0;  // registers have no index at run time, so all are tried
#pragma unroll
            for (int t = 0; t < NT; ++t)
                if (t == key / 8) pair = p.a[0][t / 2][t % 2 * 2 + half];
            const float2 both = M::unpack(__shfl_sync(~0u, pair, (lane_id() & ~3u) + key % 8 / 2));
            weight[half] = key % 2 == 0 ? both.x : both.y;
        }
#pragma unroll
        for (int n = 0; n < OT; ++n) {
            const float2 value = M::unpack(ptx::load_shared_word(place_in_tile<kRowsB>(v, key, Place::column(n, 0))));
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (weight[half] == 0.0f) continue;
                o.c[0][n][2 * half] += weight[half] * value.x;
                o.c[0][n][2 * half + 1] += weight[half] * value.y;
            }
        }
    }
}

}  // namespace flashtile
