// gradient_block.h: dS of one block of queries and one of keys, brought in for it alone: for passes that walk the
// scores once more to add up what no product needs (the gradients of a bias and of named tensors).
#pragma once

#include "cuda/kernels/parts/mma/gradient_tile.h"

namespace flashtile {

template <KernelConfig config>
struct GradientBlock {
    using Tile = GradientTile<config>;
    using Accumulators = typename Tile::ScoreGrid::Accumulators;

    const Tile tile;

    // Returns false where nothing is seen of the block; else ds and `derivative` are as GradientTile::compute leaves
    // them. The answer is the same in all threads. has_queries: whether these queries are there from a call before.
    template <DerivativeBy kBy>
    __device__ __forceinline__ bool compute(const KernelParams& params, const Sequence& seq, int i0, int j0,
                                            bool& has_queries, Accumulators& ds, Accumulators& derivative) const {
        if (i0 >= seq.seqlen_q || j0 >= seq.seqlen_k) return false;
        const int i1 = smaller(i0 + config.Br, seq.seqlen_q);
        if (!seq.sees_any<config>(i0, i1, j0, j0 + config.Bc)) return false;
        typename Tile::ScoreOptions options;
        const bool shows = options.find_shown(params, seq, Tile::place_in(i0, j0));
        if (!__syncthreads_or(shows)) return false;  // and the block before has been read
        tile.load_keys(params, seq, j0);
        if (!has_queries) tile.load_queries(params, seq, seq.h, i0, 0);
        if (threadIdx.x < round_up(config.Bc, 32) / 32) tile.seen(0)[threadIdx.x] = 0;
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();  // the block has come for every thread
        if (!has_queries) {
            tile.clear_empty_rows(params, 0);
            __syncthreads();  // empty rows read as zero from here on
            has_queries = true;
        }
        tile.template compute<kBy>(params, seq, i0, j0, 0, 0, options, ds, derivative);
        return true;
    }
};

}  // namespace flashtile
