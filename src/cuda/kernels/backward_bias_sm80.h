// backward_bias_sm80.h: the gradient of the additive bias, dbias = P * (dP - D) where nothing is masked, summed over
// the dimensions that the bias was broadcast over. It is a pass of its own, which computes S and dP once more. A thread
// block owns a tile of the bias and walks all blocks that the tile was broadcast to, in a fixed order, so that the sums
// repeat bit for bit and need no memory.
#pragma once

#include "cuda/kernels/parts/mma/gradient_block.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardBiasSm80 {
    using Tile = GradientTile<config>;
    using Grid = typename Tile::ScoreGrid;
    using Accumulators = typename Grid::Accumulators;

    const KernelParams& params;
    const GradientBlock<config> block;

    // A range of blocks or heads: all of them where the bias is broadcast, otherwise one.
    struct Range {
        int first, end;
    };
    __device__ static __forceinline__ Range range(bool broadcast, int own, int all) {
        return broadcast ? Range{0, all} : Range{own, own + 1};
    }

    __device__ __forceinline__ void run(int own_b, int own_h, int own_i, int own_j) const {
        const bool over_rows = params.bias_rows == 1, over_columns = params.bias_cols == 1;
        const Range bs = range(params.bias_batch == 1, own_b, params.batch);
        const Range hs = range(params.bias_heads == 1, own_h, params.heads);
        Accumulators sum;
        sum.clear();
        for (int b = bs.first; b < bs.end; ++b)
            for (int h = hs.first; h < hs.end; ++h) {
                const Sequence seq = Sequence::make<config>(params, b, h);
                const Range is = range(over_rows, own_i, (seq.seqlen_q + config.Br - 1) / config.Br);
                const Range js = range(over_columns, own_j, (seq.seqlen_k + config.Bc - 1) / config.Bc);
                for (int i = is.first; i < is.end; ++i)
                    for (int j = js.first; j < js.end; ++j) add_block(seq, i * config.Br, j * config.Bc, sum);
            }
        if (over_rows || over_columns)
            write_sums(sum, over_rows, over_columns, own_b, own_h, own_i * config.Br, own_j * config.Bc);
        else
            write(sum, own_b, own_h, own_i * config.Br, own_j * config.Bc);
    }

private:
    __device__ __forceinline__ void add_block(const Sequence& seq, int i0, int j0, Accumulators& sum) const {
        Accumulators ds, unused;
        bool has_queries = false;
        if (!block.template compute<DerivativeBy::bias>(params, seq, i0, j0, has_queries, ds, unused)) return;
        each_score<Grid::MT, Grid::NT>([&](int m, int n, int e) { sum.c[m][n][e] += ds.c[m][n][e]; });
    }

    __device__ __forceinline__ void store(Index b, Index h, Index i, Index j, float x) const {
        const DeviceTensor& t = params.dbias;
        const Index at = b * t.stride_batch + h * t.stride_head + i * t.stride_row + j * t.stride_col;
        if constexpr (config.bias == BiasElement::fp32)
            static_cast<float*>(t.data)[at] = x;
        else
            static_cast<typename Tile::Scalar*>(t.data)[at] = Tile::M::from_float(x);
    }

    __device__ __forceinline__ void write(const Accumulators& sum, Index b, Index h, int i0, int j0) const {
        each_score<Grid::MT, Grid::NT>([&](int m, int n, int e) {
            const int i = i0 + Grid::row() + Place::row(m, e), j = j0 + Grid::column() + Place::column(n, e);
            if (i < params.bias_rows && j < params.bias_cols) store(b, h, i, j, sum.c[m][n][e]);
        });
    }

    // Sums over rows, columns or both: first within a lane, then, in a fixed order, over all lanes that share a place.
    __device__ __forceinline__ void write_sums(const Accumulators& sum, bool over_rows, bool over_columns, Index b,
                                               Index h, int i0, int j0) const {
        float* ds = reinterpret_cast<float*>(block.tile.k);  // [Br][kBuffer] of a slice of columns at a time
        constexpr int kSlice = 8;
        constexpr int kPitch = kSlice + 1;
        float total = 0.0f;  // of this thread's row, or of everything (thread 0)
#pragma unroll 1
        for (int slice = 0; slice < config.Bc; slice += kSlice) {
            __syncthreads();  // the slice before has been read
            each_score<Grid::MT, Grid::NT>([&](int m, int n, int e) {
                const int column = Grid::column() + Place::column(n, e) - slice;
                if (column >= 0 && column < kSlice)
                    ds[(Grid::row() + Place::row(m, e)) * kPitch + column] = sum.c[m][n][e];
            });
            __syncthreads();  // the slice is written
            if (over_rows && threadIdx.x < kSlice) {
                float column = 0.0f;
                for (int i = 0; i < config.Br; ++i) column += ds[i * kPitch + threadIdx.x];
                if (over_columns)
                    total += column;
                else if (j0 + slice + threadIdx.x < params.bias_cols)
                    store(b, h, 0, j0 + slice + threadIdx.x, column);
            }
            if (!over_rows && threadIdx.x < config.Br)
                for (int j = 0; j < kSlice; ++j) total += ds[threadIdx.x * kPitch + j];
        }
        if (over_rows && over_columns && threadIdx.x < 32) {
            if (threadIdx.x >= kSlice) total = 0.0f;
            for (int lanes = kSlice / 2; lanes > 0; lanes /= 2) total += __shfl_xor_sync(~0u, total, lanes);
            if (threadIdx.x == 0) store(b, h, 0, 0, total);
        }
        if (!over_rows && threadIdx.x < config.Br && i0 + threadIdx.x < params.bias_rows)
            store(b, h, i0 + threadIdx.x, 0, total);
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one tile of the bias.
template <KernelConfig config>
__device__ __forceinline__ void backward_bias_sm80(const KernelParams& params) {
    const Index rows = params.bias_rows == 1 ? 1 : (params.bias_rows + config.Br - 1) / config.Br;
    const Index columns = params.bias_cols == 1 ? 1 : (params.bias_cols + config.Bc - 1) / config.Bc;
    Index n = blockIdx.x;
    const Index j = n % columns;
    n /= columns;
    const Index i = n % rows;
    n /= rows;
    const BackwardBiasSm80<config> bias{params, {GradientTile<config>(shared_memory)}};
    bias.block.tile.clear_paddings();
    bias.run(static_cast<int>(n / params.bias_heads), static_cast<int>(n % params.bias_heads), static_cast<int>(i),
             static_cast<int>(j));
}

}  // namespace flashtile
