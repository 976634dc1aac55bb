// listed_blocks.h: what a user's lists of blocks say of a warp's scores. block_kinds has made a byte for each block of
// them before (shared/block_kinds.h).
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "shared/block_kinds.h"

namespace flashtile {

// The blocks of a head.
__device__ __forceinline__ BlockKinds<int> block_kinds_of(const KernelParams& p, Index b, Index h) {
    const int rows = (static_cast<int>(p.seqlen_q) + p.block_q - 1) / p.block_q;
    const int columns = (static_cast<int>(p.seqlen_k) + p.block_k - 1) / p.block_k;
    const Index list = (p.list_batch > 1 ? b : 0) * p.list_heads + (p.list_heads > 1 ? h : 0);
    return {p.ws_block_kinds + list * rows * columns, p.block_q, p.block_k, columns};
}
__device__ __forceinline__ BlockKinds<int> block_kinds_of(const KernelParams& p, const Sequence& seq) {
    return block_kinds_of(p, seq.b, seq.h);
}

// Calls body(m, n, kind) for the fragments of a warp's scores, of 16 rows and 8 columns each: each lies in one block,
// of which lists say that it is hidden, partial or full. Rows are queries and columns keys, or, transposed, the other
// way round.
template <int MT, int NT, bool kTransposed, class Body>
__device__ __forceinline__ void each_listed_fragment(const KernelParams& p, const Sequence& seq, const Place& place,
                                                     Body body) {
    const BlockKinds<int> blocks = block_kinds_of(p, seq);
    const int columns = kTransposed ? seq.seqlen_q : seq.seqlen_k;
    const int of_row = kTransposed ? blocks.block_k : blocks.block_q;
    const int of_column = kTransposed ? blocks.block_q : blocks.block_k;
    const Index down = kTransposed ? 1 : blocks.row, across = kTransposed ? blocks.row : 1;
    const int first = place.j0 / of_column;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        const int row = smaller(place.i0 + m * 16, (kTransposed ? seq.seqlen_k : seq.seqlen_q) - 1);
        const unsigned char* kind = blocks.kind + row / of_row * down + first * across;
        int end = (first + 1) * of_column;
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            const int column = place.j0 + n * 8;
            if (column >= end) kind += across, end += of_column;
            body(m, n, column < columns ? static_cast<BlockKind>(*kind) : BlockKind::hidden);
        }
    }
}

}  // namespace flashtile
