// quad_store.h: stores accumulators of a warpgroup's product to rows of a tensor straight from registers. The four
// lanes that share a row first exchange their columns, so that each has eight neighbours and stores them as one vector.
// This takes no shared memory, and so nobody waits for any.
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/quad_transpose.h"
#include "shared/mask.h"

namespace flashtile {

// Stores the first `columns` columns, a multiple of 8, of those of this warp's 16 rows that is_stored(row) says, times
// `factor` of each. place(row) is where a row begins. In fp32 a lane's own two neighbours make a vector.
template <Element kElement, int OT, class IsStored, class RowPlace>
__device__ __forceinline__ void store_rows_at(const Fragments<1, OT>& x, const float (&factor)[2], int columns,
                                              IsStored is_stored, RowPlace place) {
    static_assert(OT % 4 == 0, "");
    constexpr bool kWide = kElement == Element::fp32;
    const int column = kWide ? Place::column(0, 0) : static_cast<int>(lane_id() % 4) * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = Place::row(0, 2 * half);
        auto* const to = place(row) + column;
        if constexpr (kWide) {
#pragma unroll
            for (int n = 0; n < OT; ++n)
                if (is_stored(row) && n * 8 + column < columns)
                    *reinterpret_cast<float2*>(to + n * 8) =
                        make_float2(x.c[0][n][2 * half] * factor[half], x.c[0][n][2 * half + 1] * factor[half]);
        } else {
#pragma unroll
            for (int n = 0; n < OT; n += 4) {
                unsigned words[4];
#pragma unroll
                for (int t = 0; t < 4; ++t)
                    words[t] = Math<kElement>::pack(x.c[0][n + t][2 * half] * factor[half],
                                                    x.c[0][n + t][2 * half + 1] * factor[half]);
                transpose_in_quad(words);
                if (is_stored(row) && n * 8 + column < columns)
                    *reinterpret_cast<uint4*>(to + n * 8) = make_uint4(words[0], words[1], words[2], words[3]);
            }
        }
    }
}

// The same of rows that lie `stride` apart: the first `count` of `to`.
template <Element kElement, int kColumns, int OT>
__device__ __forceinline__ void store_rows(const Fragments<1, OT>& x, const float (&factor)[2],
                                           typename Math<kElement>::Scalar* to, Index stride, int count) {
    static_assert(kColumns % 8 == 0, "");
    store_rows_at<kElement>(
        x, factor, kColumns, [&](int row) { return row < count; }, [&](int row) { return to + row * stride; });
}

}  // namespace flashtile
