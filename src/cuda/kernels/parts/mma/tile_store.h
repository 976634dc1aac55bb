// tile_store.h: stores accumulators to rows of a tensor by way of shared memory, so that a row is stored in whole
// vectors.
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "shared/mask.h"

namespace flashtile {

// Writes one warp's accumulators to its own corner of a tile in shared memory.
template <Element kElement, int kPitch, int MT, int NT>
__device__ __forceinline__ void write_fragments(const Fragments<MT, NT>& x, typename Math<kElement>::Scalar* tile) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                Math<kElement>::store_pair(tile + Place::row(m, 2 * half) * kPitch + Place::column(n, 0),
                                           x.c[m][n][2 * half], x.c[m][n][2 * half + 1]);
}

// Stores the first `count` rows of one warp's accumulators in fp32, each to where row_at(row) says, straight from
// registers.
template <int kColumns, int MT, int NT, class RowAt>
__device__ __forceinline__ void store_fragments(const Fragments<MT, NT>& x, Index count, RowAt row_at) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = Place::row(m, 2 * half);
            if (row >= count) continue;
            float* const to = row_at(row);
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (const int column = Place::column(n, e); column < kColumns) to[column] = x.c[m][n][2 * half + e];
        }
}

// kThreads threads, of which this is number `thread`, store the first `count` rows of a tile, each to where row_at(row)
// says.
template <class Scalar, int kRows, int kColumns, int kPitch, int kThreads, int kVectorBytes, class RowAt>
__device__ __forceinline__ void store_rows(const Scalar* tile, Index count, unsigned thread, RowAt row_at) {
    struct alignas(kVectorBytes) Vector {
        Scalar x[kVectorBytes / sizeof(Scalar)];
    };
    constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(Scalar));
    constexpr int kVectors = kColumns / kPerVector;
    static_assert(kColumns % kPerVector == 0, "a vector may not reach past a row");
    for (int n = static_cast<int>(thread); n < kRows * kVectors; n += kThreads) {
        const int row = n / kVectors, column = n % kVectors * kPerVector;
        if (row < count)
            *reinterpret_cast<Vector*>(row_at(row) + column) =
                *reinterpret_cast<const Vector*>(tile + row * kPitch + column);
    }
}

// The same to rows that lie one after the other.
template <class Scalar, int kRows, int kColumns, int kPitch, int kThreads, int kVectorBytes>
__device__ __forceinline__ void store_tile(const Scalar* tile, Scalar* to, Index stride, Index count, unsigned thread) {
    store_rows<Scalar, kRows, kColumns, kPitch, kThreads, kVectorBytes>(tile, count, thread,
                                                                        [&](int row) { return to + row * stride; });
}

}  // namespace flashtile
