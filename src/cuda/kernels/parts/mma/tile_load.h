// tile_load.h: loads rows of a tensor into a tile of shared memory, asynchronously where pairs of elements are aligned.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/ptx/cp_async.h"
#include "shared/mask.h"

namespace flashtile {

template <int kVectorBytes, class Scalar>
__device__ __forceinline__ void copy_vector(Scalar* to, const Scalar* from, bool valid) {
    if constexpr (kVectorBytes >= 4)
        ptx::cp_async<kVectorBytes>(static_cast<unsigned>(__cvta_generic_to_shared(to)), from, valid);
    else
        *to = valid ? *from : Scalar{};
}

// Loads rows [row0, row0 + kRows) of `from` into `tile`. Rows outside [first, end) become zero and are not read.
template <class Scalar, int kRows, int kColumns, int kPitch, int kThreads, int kVectorBytes>
__device__ __forceinline__ void load_tile(Scalar* tile, const Scalar* from, Index stride, int row0, int first,
                                          int end) {
    constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(Scalar));
    constexpr int kVectors = kColumns / kPerVector;  // of a row
    constexpr int kSteps = (kRows * kVectors + kThreads - 1) / kThreads;
    static_assert(kColumns % kPerVector == 0, "a vector may not reach past a row");
    const int low = first - row0, high = end - row0;
    const Scalar* base = from + row0 * stride;
    const auto copy = [&](Scalar* to, const Scalar* source, bool valid) {
        copy_vector<kVectorBytes>(to, source, valid);
    };
    if constexpr (kThreads % kVectors == 0 && kRows * kVectors % kThreads == 0) {
        // A thread stays in its column and steps down by whole rows, so that an address takes one addition.
        constexpr int kRowStep = kThreads / kVectors;
        const int thread_row = static_cast<int>(threadIdx.x) / kVectors;
        const int column = static_cast<int>(threadIdx.x) % kVectors * kPerVector;
        const Scalar* source = base + thread_row * stride + column;
        Scalar* to = tile + thread_row * kPitch + column;
        const Index step = kRowStep * stride;
        if (low <= 0 && high >= kRows) {
#pragma unroll kSteps <= 16 ? kSteps : 4
            for (int n = 0; n < kSteps; ++n, source += step) copy(to + n * kRowStep * kPitch, source, true);
        } else {
#pragma unroll 4
            for (int n = 0; n < kSteps; ++n, source += step) {
                const int row = thread_row + n * kRowStep;
                const bool valid = row >= low && row < high;
                copy(to + n * kRowStep * kPitch, valid ? source : from, valid);
            }
        }
    } else {
#pragma unroll 4
        for (int n0 = 0; n0 < kRows * kVectors; n0 += kThreads) {
            const int n = n0 + static_cast<int>(threadIdx.x);
            if (kRows * kVectors % kThreads != 0 && n >= kRows * kVectors) break;
            const int row = n / kVectors, column = n % kVectors * kPerVector;
            const bool valid = row >= low && row < high;
            copy(tile + row * kPitch + column, valid ? base + row * stride + column : from, valid);
        }
    }
}

// The same of rows that lie anywhere: row_at(row) is where a row of the tile lies, or null where it becomes zero.
// `from` is an address that can be read.
template <class Scalar, int kRows, int kColumns, int kPitch, int kThreads, int kVectorBytes, class RowAt>
__device__ __forceinline__ void load_rows(Scalar* tile, const Scalar* from, RowAt row_at) {
    constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(Scalar));
    constexpr int kVectors = kColumns / kPerVector;
    static_assert(kColumns % kPerVector == 0, "a vector may not reach past a row");
#pragma unroll 4
    for (int n0 = 0; n0 < kRows * kVectors; n0 += kThreads) {
        const int n = n0 + static_cast<int>(threadIdx.x);
        if (kRows * kVectors % kThreads != 0 && n >= kRows * kVectors) break;
        const int row = n / kVectors, column = n % kVectors * kPerVector;
        const Scalar* const source = row_at(row);
        copy_vector<kVectorBytes>(tile + row * kPitch + column, source != nullptr ? source + column : from,
                                  source != nullptr);
    }
}

// Clears the columns past kColumns, which no load touches and which must read as zero.
template <class Scalar, int kRows, int kColumns, int kPadded, int kPitch, int kThreads>
__device__ __forceinline__ void clear_padding(Scalar* tile) {
    constexpr int kPadding = kPadded - kColumns;
    if constexpr (kPadding > 0)
        for (int n = static_cast<int>(threadIdx.x); n < kRows * kPadding; n += kThreads)
            tile[n / kPadding * kPitch + kColumns + n % kPadding] = Scalar{};
}

}  // namespace flashtile
