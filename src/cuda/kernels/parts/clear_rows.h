// clear_rows.h: rows of a tile that the copy engine brought, and that are not the sequence's, become zero (sm_90).
#pragma once

#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Rows [first, end) of a tile of kRows rows, by the 128 threads of a warpgroup. The swizzle stays within a row.
template <int kRows, int kColumns>
__device__ __forceinline__ void clear_rows(unsigned tile, int first, int end) {
    constexpr int kPieces = 8;  // of 16 bytes, in a row of a chunk
    for (int n = static_cast<int>(threadIdx.x % 128); n < (end - first) * kPieces; n += 128)
#pragma unroll
        for (int c = 0; c < kColumns; c += kChunk)
            ptx::store_shared(tile + c * kRows * 2 + first * kChunk * 2 + n * 16, make_uint4(0, 0, 0, 0));
}

}  // namespace flashtile
