// standard_product.h: C = alpha A B for every head, the products of standard attention (FlashAttention paper,
// Algorithms 0 and 3), each from memory to memory, on mma.sync, ldmatrix and cp.async.
#pragma once

#include "baselines/cuda/kernels/standard_params.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/parts/common/warp_grid.h"
#include "cuda/kernels/parts/mma/tile_load.h"
#include "cuda/kernels/parts/mma/tile_store.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block makes one tile of C.
template <KernelConfig config, ProductForm form>
__device__ __forceinline__ void standard_product(const StandardParams& p) {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Grid = WarpGrid<config.Br, config.Bc, config.warps, config.warps_s>;
    constexpr int kThreads = config.warps * 32;
    constexpr int kA = a_tile_elements(config, form), kB = b_tile_elements(config, form);
    constexpr int kPitchA = product_pitch(form.a_transposed ? config.Br : kProductDepth);
    constexpr int kPitchB = product_pitch(form.b_transposed ? config.Bc : kProductDepth);
    constexpr int kPitchC = product_pitch(config.Bc);
    constexpr Read kReadA = form.a_transposed ? Read::transposed : Read::as_stored;
    constexpr Read kReadB = form.b_transposed ? Read::transposed : Read::as_stored;

    const int across = (p.columns + config.Bc - 1) / config.Bc, down = (p.rows + config.Br - 1) / config.Br;
    const int tile = static_cast<int>(blockIdx.x) % (across * down);
    const Index head = blockIdx.x / static_cast<unsigned>(across * down);
    const Index b = head / p.heads, h = head % p.heads;
    const int row0 = tile / across * config.Br, column0 = tile % across * config.Bc;
    const Scalar* from_a = rows_of<Scalar>(p.a, b, h, 0);
    const Scalar* from_b = rows_of<Scalar>(p.b, b, h, 0);
    Scalar* tiles = reinterpret_cast<Scalar*>(shared_memory);

    const auto load = [&](int stage, int depth0) {
        Scalar* to = tiles + stage * (kA + kB);
        if constexpr (form.a_transposed)
            load_tile<Scalar, kProductDepth, config.Br, kPitchA, kThreads, config.vector_bytes>(
                to, from_a + row0, p.a.stride_row, depth0, 0, p.depth);
        else
            load_tile<Scalar, config.Br, kProductDepth, kPitchA, kThreads, config.vector_bytes>(
                to, from_a + depth0, p.a.stride_row, row0, 0, p.rows);
        if constexpr (form.b_transposed)
            load_tile<Scalar, kProductDepth, config.Bc, kPitchB, kThreads, config.vector_bytes>(
                to + kA, from_b + column0, p.b.stride_row, depth0, 0, p.depth);
        else
            load_tile<Scalar, config.Bc, kProductDepth, kPitchB, kThreads, config.vector_bytes>(
                to + kA, from_b + depth0, p.b.stride_row, column0, 0, p.columns);
    };

    typename Grid::Accumulators c;
    c.clear();
    const int steps = (p.depth + kProductDepth - 1) / kProductDepth;
#pragma unroll
    for (int n = 0; n < config.stages - 1; ++n) {
        if (n < steps) load(n, n * kProductDepth);
        ptx::cp_async_commit();
    }
    int stage = 0;
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
        ptx::cp_async_wait<config.stages - 2>();
        __syncthreads();  // slice n has come, and none still reads the stage that is filled next
        const int ahead = n + config.stages - 1;
        if (ahead < steps) load(stage == 0 ? config.stages - 1 : stage - 1, ahead * kProductDepth);
        ptx::cp_async_commit();
        const Scalar* tile_a = tiles + stage * (kA + kB);
        const Scalar* tile_b = tile_a + kA;
        M::template product<kProductDepth, kPitchA, kReadA, kPitchB, kReadB>(
            c, tile_a + Grid::row() * (form.a_transposed ? 1 : kPitchA),
            tile_b + Grid::column() * (form.b_transposed ? 1 : kPitchB));
        stage = stage == config.stages - 1 ? 0 : stage + 1;
    }

    each_score<Grid::MT, Grid::NT>([&](int m, int n, int e) { c.c[m][n][e] *= p.alpha; });
    __syncthreads();  // the factors have been read
    write_fragments<config.element, kPitchC>(c, tiles + Grid::row() * kPitchC + Grid::column());
    __syncthreads();
    store_tile<Scalar, config.Br, config.Bc, kPitchC, kThreads, config.vector_bytes>(
        tiles, rows_of<Scalar>(p.c, b, h, row0) + column0, p.c.stride_row, p.rows - row0, threadIdx.x);
}

}  // namespace flashtile
