// backward_sm80.h: FlashAttention-2's backward pass (arXiv 2307.08691, Algorithm 2) on mma.sync, ldmatrix and cp.async.
// A thread block owns Bc keys of one key head and walks the blocks of Br queries that see them, of every query head of
// the group: P is recomputed from the scores and LSE, dK and dV stay in registers, dQ is added to in fp32 in global
// memory.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/query_gradient.h"
#include "cuda/kernels/parts/mma/gradient_tile.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardSm80 {
    using Tile = GradientTile<config>;
    using M = typename Tile::M;
    using Scalar = typename Tile::Scalar;
    using KeyGrid = WarpGrid<config.Bc, padded(config, config.head_dim), config.warps, config.warps_dkv>;
    using ValueGrid = WarpGrid<config.Bc, padded(config, config.head_dim_v), config.warps, config.warps_dkv>;

    const KernelParams& params;
    Sequence seq;  // h is the query head of the current step
    const Tile tile;
    const Index kv_head;
    const int block;   // of keys
    const int j0, j1;  // this block's keys; those past seqlen_k only get zero gradients

    __device__ __forceinline__ BackwardSm80(const KernelParams& p, const Sequence& s, unsigned char* memory, int n)
        : params(p),
          seq(s),
          tile(memory),
          kv_head(s.kv_head(p)),
          block(n),
          j0(n * config.Bc),
          j1(smaller(j0 + config.Bc, s.rows_k)) {}

    __device__ __forceinline__ void run() {
        typename KeyGrid::Accumulators dk;
        typename ValueGrid::Accumulators dv;
        dk.clear();
        dv.clear();

        const int j_end = smaller(j1, seq.seqlen_k);
        const int first_query = seq.first_query<config>(j0), end_query = j_end > j0 ? seq.end_query<config>(j_end) : 0;
        const auto queries = VisitedBlocks<int>::holding(first_query, end_query, config.Br);
        const int steps = queries.count * params.group;
        const auto head_of = [&](int n) { return kv_head * params.group + n / queries.count; };
        const auto query_of = [&](int n) { return queries.forwards(n % queries.count); };
        // What no query of a block sees of a mask function is not loaded either.
        const auto shown = [&](int n) { return BlockMap<config>::shows(params, seq.b, head_of(n), query_of(n), j0); };
        // Passes the turn at dQ of step n - 1 on, to which all threads have added. That was a while ago, so the fence
        // has little to wait for.
        const auto pass_turn = [&](int n) {
            if (!config.deterministic || n == 0 || threadIdx.x != 0 || !shown(n - 1)) return;
            seq.h = head_of(n - 1);
            Turn<config>(params, seq, block, query_of(n - 1)).pass();
        };

        if (steps > 0) {
            tile.clear_paddings();
            tile.load_keys(params, seq, j0);
        }
#pragma unroll
        for (int n = 0; n < config.stages - 1; ++n) {
            if (n < steps && shown(n)) tile.load_queries(params, seq, head_of(n), query_of(n), n);
            ptx::cp_async_commit();
        }
        int stage = 0, parity = 0;
#pragma unroll 1
        for (int n = 0; n < steps; ++n) {
            if constexpr (ScoreModifier<config>::kMayHide)
                if (threadIdx.x < round_up(config.Bc, 32) / 32) tile.seen(parity)[threadIdx.x] = 0;
            if constexpr (config.stages == 1) {
                __syncthreads();  // none still reads the block before
                if (shown(n)) tile.load_queries(params, seq, head_of(n), query_of(n), 0);
                ptx::cp_async_commit();
                ptx::cp_async_wait<0>();
                __syncthreads();  // block n has come for every thread
                pass_turn(n);
            } else {
                ptx::cp_async_wait<config.stages - 2>();
                __syncthreads();  // the same, and none still reads P, dS or the stage that is filled next
                pass_turn(n);
                const int ahead = n + config.stages - 1;
                if (ahead < steps && shown(ahead))
                    tile.load_queries(params, seq, head_of(ahead), query_of(ahead),
                                      stage == 0 ? config.stages - 1 : stage - 1);
                ptx::cp_async_commit();
            }
            if (shown(n)) {
                seq.h = head_of(n);
                typename Tile::ScoreOptions options;
                bool sees = options.find_shown(params, seq, Tile::place_in(query_of(n), j0));
                if constexpr (ScoreModifier<config>::kMayHide) {
                    tile.clear_empty_rows(params, stage);
                    sees = __syncthreads_or(sees);  // empty rows read as zero from here on
                }
                // a block that the map shows must have its turn
                if (config.deterministic || sees) process_block(query_of(n), stage, parity, options, dk, dv);
            }
            stage = stage == config.stages - 1 ? 0 : stage + 1;
            parity ^= 1;
        }
        if constexpr (config.deterministic) __syncthreads();  // all have added to the last dQ
        pass_turn(steps);
        finish(dk, dv);
    }

    __device__ __forceinline__ void process_block(int i0, int stage, int parity, typename Tile::ScoreOptions& options,
                                                  typename KeyGrid::Accumulators& dk,
                                                  typename ValueGrid::Accumulators& dv) const {
        typename Tile::ScoreGrid::Accumulators score_gradient, derivative;
        tile.template compute<DerivativeBy::product>(params, seq, i0, j0, stage, parity, options, score_gradient,
                                                     derivative);
        tile.write_ds(score_gradient);
        // This is another warp than the one that passes turns on.
        if (config.deterministic && threadIdx.x == 32) Turn<config>(params, seq, block, i0).wait();
        __syncthreads();  // P and dS are written, and all key blocks whose turn is before have added to dQ
        // dV += P^T dO
        M::template product<config.Br, Tile::kPitchS, Read::transposed, Tile::kPitchV, Read::transposed>(
            dv, tile.p + ValueGrid::row(), tile.dout_stage(stage) + ValueGrid::column());
        // dQ += dS K
        using Grid = QueryGrid<config>;
        typename Grid::Accumulators dq;
        const Scalar* ds = tile.ds + Grid::row() * Tile::kPitchS;
        const Scalar* k = tile.k + Grid::column();
        if constexpr (ScoreModifier<config>::kMayHide)
            M::template product<config.Bc, Tile::kPitchS, Read::as_stored, Tile::kPitchQ, Read::transposed, true>(
                dq, ds, k, typename Tile::SeenKeys{tile.seen(parity)});
        else
            M::template product<config.Bc, Tile::kPitchS, Read::as_stored, Tile::kPitchQ, Read::transposed, true>(
                dq, ds, k);
        const int column = Grid::column() / 8;
        QueryGradient<config>::add(QueryGradient<config>::at(params, seq, i0, Grid::row() / 16, column), column, dq);
        // dK += dS^T Q
        M::template product<config.Br, Tile::kPitchS, Read::transposed, Tile::kPitchQ, Read::transposed>(
            dk, tile.ds + KeyGrid::row(), tile.q_stage(stage) + KeyGrid::column());
    }

    // Stores dK and dV by way of K's and V's place in shared memory.
    __device__ __forceinline__ void finish(typename KeyGrid::Accumulators& dk,
                                           typename ValueGrid::Accumulators& dv) const {
        const float kept = kept_factor<config>(params);
        each_score<KeyGrid::MT, KeyGrid::NT>([&](int m, int n, int e) { dk.c[m][n][e] *= params.scale; });
        each_score<ValueGrid::MT, ValueGrid::NT>([&](int m, int n, int e) { dv.c[m][n][e] *= kept; });
        ptx::cp_async_wait<0>();
        __syncthreads();  // K and V have been read for the last time
        write_fragments<config.element, Tile::kPitchQ>(dk, tile.k + KeyGrid::row() * Tile::kPitchQ + KeyGrid::column());
        write_fragments<config.element, Tile::kPitchV>(dv,
                                                       tile.v + ValueGrid::row() * Tile::kPitchV + ValueGrid::column());
        __syncthreads();  // dK and dV are written
        store_tile<Scalar, config.Bc, config.head_dim, Tile::kPitchQ, Tile::kThreads, config.vector_bytes>(
            tile.k, rows_of<Scalar>(params.dk, seq.batch_row, kv_head, seq.first_k) + j0 * params.dk.stride_row,
            params.dk.stride_row, j1 - j0, threadIdx.x);
        store_tile<Scalar, config.Bc, config.head_dim_v, Tile::kPitchV, Tile::kThreads, config.vector_bytes>(
            tile.v, rows_of<Scalar>(params.dv, seq.batch_row, kv_head, seq.first_k) + j0 * params.dv.stride_row,
            params.dv.stride_row, j1 - j0, threadIdx.x);
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one block of keys.
template <KernelConfig config>
__device__ __forceinline__ void backward_sm80(const KernelParams& params) {
    const HeadBlock own(params.seqlen_k, config.Bc);
    const Sequence seq = own.of_keys<config>(params);
    const int block = launched_key_block<config>(own);
    if (block * config.Bc < seq.rows_k) BackwardSm80<config>(params, seq, shared_memory, block).run();
}

}  // namespace flashtile
