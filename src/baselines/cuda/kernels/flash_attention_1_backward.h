// flash_attention_1_backward.h: FlashAttention's backward pass (arXiv 2205.14135, Algorithm 4) with a switch for each
// thing that FlashAttention-2 changed (work_partition.h), on the parts of our own general backward kernel. dQ is added
// to in fp32 in memory on both sides of every switch.
#pragma once

#include "baselines/cuda/kernels/split_keys.h"
#include "cuda/kernels/backward_prepare.h"
#include "cuda/kernels/backward_sm80.h"

namespace flashtile {

template <KernelConfig config, WorkPartition ways>
struct FlashAttention1Backward : BackwardSm80<config> {
    using Base = BackwardSm80<config>;
    using typename Base::KeyGrid;
    using typename Base::M;
    using typename Base::Scalar;
    using typename Base::Tile;
    using typename Base::ValueGrid;
    using ScoreGrid = typename Tile::ScoreGrid;
    using Base::j0;
    using Base::params;
    using Base::seq;
    using Base::tile;
    // Where warps split keys, each has those that it owns of dK and dV, too.
    static constexpr int kOwnKeys = config.Bc / config.warps;
    static_assert(ways.split_queries || (config.warps_s == 1 && config.warps_dkv == config.warps), "");

    const SplitKeys<config, !ways.split_queries> exchange;

    // A block of keys.
    __device__ __forceinline__ FlashAttention1Backward(const KernelParams& p, const Sequence& s, unsigned char* memory,
                                                       int block)
        : Base(p, s, memory, block), exchange(memory + round_up(backward_shared_bytes(config), 16)) {}

    __device__ __forceinline__ void run() const {
        typename KeyGrid::Accumulators dk;
        typename ValueGrid::Accumulators dv;
        dk.clear();
        dv.clear();
        const auto queries = VisitedBlocks<int>::holding(seq.template first_query<config>(j0),
                                                         seq.template end_query<config>(Base::j1), config.Br);
        tile.clear_paddings();
        tile.load_keys(params, seq, j0);
#pragma unroll
        for (int n = 0; n < config.stages - 1; ++n) {
            if (n < queries.count) tile.load_queries(params, seq, seq.h, queries.forwards(n), n);
            ptx::cp_async_commit();
        }
        int stage = 0;
#pragma unroll 1
        for (int n = 0; n < queries.count; ++n) {
            ptx::cp_async_wait<config.stages - 2>();
            __syncthreads();  // block n has come, and none still reads P, dS or the stage that is filled next
            const int ahead = n + config.stages - 1;
            if (ahead < queries.count)
                tile.load_queries(params, seq, seq.h, queries.forwards(ahead),
                                  stage == 0 ? config.stages - 1 : stage - 1);
            ptx::cp_async_commit();
            step(queries.forwards(n), stage, dk, dv);
            stage = stage == config.stages - 1 ? 0 : stage + 1;
        }
        Base::finish(dk, dv);
    }

private:
    // Algorithm 4, lines 10 to 22.
    __device__ __forceinline__ void step(int i0, int stage, typename KeyGrid::Accumulators& dk,
                                         typename ValueGrid::Accumulators& dv) const {
        probabilities(i0, stage);
        // --- section 3.3: {warps share P and dS}, or {each reads what it wrote itself} ---
        if constexpr (ways.split_queries)
            __syncthreads();
        else
            __syncwarp();
        // dV += P^T dO
        M::template product<config.Br, Tile::kPitchS, Read::transposed, Tile::kPitchV, Read::transposed>(
            dv, tile.p + ValueGrid::row(), tile.dout_stage(stage) + ValueGrid::column());
        add_query_gradient(i0);
        // dK += dS^T Q
        M::template product<config.Br, Tile::kPitchS, Read::transposed, Tile::kPitchQ, Read::transposed>(
            dk, tile.ds + KeyGrid::row(), tile.q_stage(stage) + KeyGrid::column());
    }

    // P and dS = P o (dP - D), to shared memory.
    __device__ __forceinline__ void probabilities(int i0, int stage) const {
        constexpr int MT = ScoreGrid::MT, NT = ScoreGrid::NT, kPitchQ = Tile::kPitchQ, kPitchS = Tile::kPitchS;
        constexpr int kColumns = padded(config, config.head_dim);
        const int row0 = ScoreGrid::row(), column0 = ScoreGrid::column();
        const Place place{i0 + row0, j0 + column0};
        const float* of_rows = tile.statistics + stage * kRowStatistics * config.Br + row0;

        typename ScoreGrid::Accumulators p, ds;
        dot_products<M, kColumns, kPitchQ, kPitchQ>(p, tile.q_stage(stage) + row0 * kPitchQ,
                                                    tile.k + column0 * kPitchQ);
        if (!seq.template sees_all<config>(place.i0, smaller(place.i0 + MT * 16, seq.seqlen_q), place.j0,
                                           place.j0 + NT * 8))
            apply_band<config>(p, seq, place);
        // --- section 3.1: P is made of {LSE}, or {m and l} ---
        each_row([&](int m, int half, int row) {
            const float highest = of_rows[row];
            const float factor = ways.deferred ? 1.0f : 1.0f / of_rows[config.Br + row];
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    float& x = p.c[m][n][e];
                    x = ptx::exp2(fmaf(x, params.scale_log2, -highest));
                    if constexpr (!ways.deferred) x *= factor;
                }
        });
        M::template product<kColumns, kPitchQ, Read::as_stored, kPitchQ, Read::as_stored, true>(
            ds, tile.dout_stage(stage) + row0 * kPitchQ, tile.v + column0 * kPitchQ);
        write_fragments<config.element, kPitchS>(p, tile.p + row0 * kPitchS + column0);
        each_row([&](int m, int half, int row) {
            const float D = of_rows[2 * config.Br + row];
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) ds.c[m][n][e] = p.c[m][n][e] * (ds.c[m][n][e] - D);
        });
        tile.write_ds(ds);
    }

    // dQ += dS K. Where warps split keys, each has a share of all of it.
    __device__ __forceinline__ void add_query_gradient(int i0) const {
        using Gradient = QueryGradient<config>;
        if constexpr (ways.split_queries) {
            using Grid = QueryGrid<config>;
            typename Grid::Accumulators dq;
            M::template product<config.Bc, Tile::kPitchS, Read::as_stored, Tile::kPitchQ, Read::transposed, true>(
                dq, tile.ds + Grid::row() * Tile::kPitchS, tile.k + Grid::column());
            const int column = Grid::column() / 8;
            Gradient::add(Gradient::at(params, seq, i0, Grid::row() / 16, column), column, dq);
        } else {
            using Grid = typename SplitKeys<config>::OwnedGrid;
            typename Grid::Accumulators dq;
            dq.clear();
            const int own_key = ScoreGrid::column();
            exchange.add_up(dq, [&](int column, auto& part) {
                M::template product<kOwnKeys, Tile::kPitchS, Read::as_stored, Tile::kPitchQ, Read::transposed, true>(
                    part, tile.ds + own_key, tile.k + own_key * Tile::kPitchQ + column);
            });
            Gradient::add(Gradient::at(params, seq, i0, Grid::row() / 16, 0), 0, dq);
        }
    }

    template <class Body>
    __device__ __forceinline__ static void each_row(Body body) {
#pragma unroll
        for (int m = 0; m < ScoreGrid::MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) body(m, half, Place::row(m, 2 * half));
    }
};

// Section 3.2: one thread block works on one block of keys, or on one head.
template <KernelConfig config, WorkPartition ways>
__device__ __forceinline__ void flash_attention_1_backward(const KernelParams& params) {
    const HeadBlock own(ways.over_sequence ? params.seqlen_k : 1, ways.over_sequence ? config.Bc : 1);
    const Sequence seq = own.of_queries<config>(params);
    if constexpr (ways.over_sequence) {
        FlashAttention1Backward<config, ways>(params, seq, shared_memory, static_cast<int>(own.block())).run();
    } else {
#pragma unroll 1
        for (int block = 0; block * config.Bc < seq.seqlen_k; ++block) {
            __syncthreads();  // dK and dV of the block before have been stored
            FlashAttention1Backward<config, ways>(params, seq, shared_memory, block).run();
        }
    }
}

// What backward starts from, as our own kernels have it; without `deferred`, m and l in the place of LSE in log2 and in
// natural units, which backward_prepare has left at +inf for rows that see no key.
template <KernelConfig config, WorkPartition ways>
__device__ __forceinline__ void flash_attention_1_prepare(const KernelParams& p) {
    backward_prepare<config>(p);
    if constexpr (ways.deferred) return;
    const HeadBlock own(p.seqlen_q, config.Br);
    const Sequence seq = own.of_queries<config>(p);
    const int i0 = static_cast<int>(own.block()) * config.Br;
    const Index unit = seq.h * p.units + seq.first_unit(p, config.packed, config.Br) + i0 / config.Br;
    const auto* ml = reinterpret_cast<const float2*>(p.ws_part_ml) + own.head * p.seqlen_q;
    if (lane_id() != 0) return;
    // by the lanes that have written these rows
    for (int row = static_cast<int>(warp_id()); row < config.Br && i0 + row < seq.seqlen_q; row += config.warps) {
        const float2 of_row = ml[i0 + row];
        if (of_row.y == 0.0f) continue;
        p.ws_lse[unit * config.Br + row] = of_row.x;
        p.ws_lse_natural[unit * config.Br + row] = of_row.y;
    }
}

}  // namespace flashtile
