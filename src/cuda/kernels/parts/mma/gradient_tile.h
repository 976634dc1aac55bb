// gradient_tile.h: P and dS of a block of Br queries and Bc keys, in shared memory (Algorithm 2, lines 10 to 14). S and
// dP are computed in registers, a rectangle in each warp. P and dS go to shared memory, where the products that need
// them read them in any order.
#pragma once

#include "cuda/kernels/parts/common/dropout.h"
#include "cuda/kernels/parts/common/warp_grid.h"
#include "cuda/kernels/parts/mma/tile_load.h"
#include "cuda/kernels/parts/mma/tile_store.h"
#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

template <KernelConfig config>
struct GradientTile {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    static constexpr int kThreads = config.warps * 32;
    static constexpr int kPitchQ = pitch(config, config.head_dim);
    static constexpr int kPitchV = pitch(config, config.head_dim_v);
    static constexpr int kPitchS = pitch(config, config.Bc);
    using ScoreGrid = WarpGrid<config.Br, config.Bc, config.warps, config.warps_s>;
    using ScoreOptions = BiasAndMask<config, ScoreGrid::MT, ScoreGrid::NT>;

    // Shared memory. A stage holds Q, dO and the statistics of a block of queries.
    Scalar *k, *v, *q, *dout, *p, *ds;
    float* statistics;    // [stage][LSE in log2 units, LSE, D][Br]
    unsigned* seen_bits;  // [2][Bc / 32] keys that a query of the block sees, where scores may hide some

    __device__ __forceinline__ explicit GradientTile(unsigned char* memory)
        : k(reinterpret_cast<Scalar*>(memory)),
          v(k + config.Bc * kPitchQ),
          q(v + config.Bc * kPitchV),
          dout(q + config.stages * config.Br * kPitchQ),
          p(dout + config.stages * config.Br * kPitchV),
          ds(p + config.Br * kPitchS),
          statistics(reinterpret_cast<float*>(ds + config.Br * kPitchS)),
          seen_bits(reinterpret_cast<unsigned*>(statistics + config.stages * kRowStatistics * config.Br)) {}

    __device__ __forceinline__ Scalar* q_stage(int stage) const { return q + stage * config.Br * kPitchQ; }
    __device__ __forceinline__ Scalar* dout_stage(int stage) const { return dout + stage * config.Br * kPitchV; }

    __device__ __forceinline__ void clear_paddings() const {
        clear_padding<Scalar, config.Bc, config.head_dim, padded(config, config.head_dim), kPitchQ, kThreads>(k);
        clear_padding<Scalar, config.Bc, config.head_dim_v, padded(config, config.head_dim_v), kPitchV, kThreads>(v);
        clear_padding<Scalar, config.stages * config.Br, config.head_dim, padded(config, config.head_dim), kPitchQ,
                      kThreads>(q);
        clear_padding<Scalar, config.stages * config.Br, config.head_dim_v, padded(config, config.head_dim_v), kPitchV,
                      kThreads>(dout);
    }

    // Loads keys [j0, j0 + Bc). Those that no query sees become zero and are not read.
    __device__ __forceinline__ void load_keys(const KernelParams& params, const Sequence& seq, int j0) const {
        const int first = seq.first_key<config>(0), end = seq.seqlen_q > 0 ? seq.end_key<config>(seq.seqlen_q) : 0;
        const Index kv_head = seq.kv_head(params);
        load_tile<Scalar, config.Bc, config.head_dim, kPitchQ, kThreads, config.vector_bytes>(
            k, rows_of<Scalar>(params.k, seq.batch_row, kv_head, seq.first_k), params.k.stride_row, j0, first, end);
        load_tile<Scalar, config.Bc, config.head_dim_v, kPitchV, kThreads, config.vector_bytes>(
            v, rows_of<Scalar>(params.v, seq.batch_row, kv_head, seq.first_k), params.v.stride_row, j0, first, end);
    }

    // Loads queries [i0, i0 + Br) of head h. Those that see no key become zero.
    __device__ __forceinline__ void load_queries(const KernelParams& params, const Sequence& seq, Index h, int i0,
                                                 int stage) const {
        const int first = seq.first_query<config>(0);
        const int end = seq.end_query<config>(seq.seqlen_k);
        load_tile<Scalar, config.Br, config.head_dim, kPitchQ, kThreads, config.vector_bytes>(
            q_stage(stage), rows_of<Scalar>(params.q, seq.batch_row, h, seq.first_q), params.q.stride_row, i0, first,
            end);
        load_tile<Scalar, config.Br, config.head_dim_v, kPitchV, kThreads, config.vector_bytes>(
            dout_stage(stage), rows_of<Scalar>(params.dout, seq.batch_row, h, seq.first_q), params.dout.stride_row, i0,
            first, end);
        const Index unit = h * params.units + seq.first_unit(params, config.packed, params.unit_rows);
        const Index row0 = unit * params.unit_rows + i0;
        float* to = statistics + stage * kRowStatistics * config.Br;
        for (int n = static_cast<int>(threadIdx.x); n < kRowStatistics * config.Br / 4; n += kThreads) {
            const int kind = n / (config.Br / 4), row = n % (config.Br / 4) * 4;
            const float* from = kind == 0 ? params.ws_lse : (kind == 1 ? params.ws_lse_natural : params.ws_D);
            ptx::cp_async<16>(static_cast<unsigned>(__cvta_generic_to_shared(to + kind * config.Br + row)),
                              from + row0 + row, true);
        }
    }

    // Where a row's statistics lie among those of its block. Named tensors have a pass behind Hopper's main kernel,
    // too.
    __device__ static __forceinline__ int statistic_of(const KernelParams& params, int row) {
        return config.kernel == Kernel::backward_tensors_sm80 ? row ^ params.row_flip : row;
    }

    // Clears rows that mask or bias leave without a key, since anything may lie there.
    __device__ __forceinline__ void clear_empty_rows(const KernelParams& params, int stage) const {
        const float* lse = statistics + stage * kRowStatistics * config.Br;
        for (int row = static_cast<int>(warp_id()); row < config.Br; row += config.warps)
            if (lse[statistic_of(params, row)] == infinity()) {
                for (int c = static_cast<int>(lane_id()); c < config.head_dim; c += 32)
                    q_stage(stage)[row * kPitchQ + c] = Scalar{};
                for (int c = static_cast<int>(lane_id()); c < config.head_dim_v; c += 32)
                    dout_stage(stage)[row * kPitchV + c] = Scalar{};
            }
    }

    // This warp's part of the block.
    __device__ static __forceinline__ Place place_in(int i0, int j0) {
        return {i0 + ScoreGrid::row(), j0 + ScoreGrid::column()};
    }

    // P = 2^(S - LSE), dP = dO V^T, dS = P * (dP - D). P is written to its tile, in which dropped probabilities are 0
    // and dropout's factor is missing. dS is the gradient of what kBy says, which `derivative` has room for
    // (ScoreModifier::apply). `bias_and_mask` knows what the mask function shows, and loads the rest here.
    template <DerivativeBy kBy>
    __device__ __forceinline__ void compute(const KernelParams& params, const Sequence& seq, int i0, int j0, int stage,
                                            int parity, ScoreOptions& bias_and_mask,
                                            typename ScoreGrid::Accumulators& dp,
                                            typename ScoreGrid::Accumulators& derivative) const {
        constexpr int MT = ScoreGrid::MT, NT = ScoreGrid::NT;
        using Modifier = ScoreModifier<config>;
        const int row0 = ScoreGrid::row(), column0 = ScoreGrid::column();
        const Place place = place_in(i0, j0);
        const float* lse = statistics + stage * kRowStatistics * config.Br + row0;
        const float* D = lse + 2 * config.Br;

        // before the product, unless registers are short
        constexpr bool kAhead =
            !config.softcap && !config.score_function && !(config.mask && config.bias != BiasElement::none);
        if constexpr (kAhead) bias_and_mask.load(params, seq, place);
        typename ScoreGrid::Accumulators s;
        dot_products<M, padded(config, config.head_dim), kPitchQ, kPitchQ>(s, q_stage(stage) + row0 * kPitchQ,
                                                                           k + column0 * kPitchQ);
        if constexpr (!kAhead) bias_and_mask.load(params, seq, place);
        Modifier::make(params, seq).template apply<kBy>(s, params, seq, place, bias_and_mask, derivative);
        const bool whole =
            seq.sees_all<config>(place.i0, smaller(place.i0 + MT * 16, seq.seqlen_q), place.j0, place.j0 + NT * 8);
        if (!whole) apply_band<config>(s, seq, place);
        if constexpr (Modifier::kMayHide) note_seen(s, Modifier::hidden_score(params), column0, parity);

#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // in natural units where options have worked on the scores (softmax.h says why)
                const float row_lse =
                    lse[statistic_of(params, Place::row(m, 2 * half)) + (config.scale_first ? config.Br : 0)];
#pragma unroll
                for (int n = 0; n < NT; ++n)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        float& x = s.c[m][n][e];
                        x = ptx::exp2(config.scale_first ? (x - row_lse) * kLog2e
                                                         : fmaf(x, params.scale_log2, -row_lse));
                    }
            }

        // dP, which becomes dS
        M::template product<padded(config, config.head_dim_v), kPitchV, Read::as_stored, kPitchV, Read::as_stored,
                            true>(dp, dout_stage(stage) + row0 * kPitchV, v + column0 * kPitchV);
        typename ScoreGrid::Accumulators kept_p = s;
        if constexpr (config.dropout) {
            const float kept = kept_factor<config>(params);
            each_score<MT, NT>([&](int m, int n, int e) { dp.c[m][n][e] *= kept; });
            each_dropped<config, MT, NT>(params, seq, place, [&](int m, int n, int e) {
                kept_p.c[m][n][e] = 0.0f;
                dp.c[m][n][e] = 0.0f;
            });
        }
        write_fragments<config.element, kPitchS>(kept_p, p + row0 * kPitchS + column0);
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float row_D = D[statistic_of(params, Place::row(m, 2 * half))];
#pragma unroll
                for (int n = 0; n < NT; ++n)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        float& x = dp.c[m][n][e];
                        x = s.c[m][n][e] * (x - row_D);
                        if constexpr (Modifier::template kHasDerivative<kBy>) x *= derivative.c[m][n][e];
                        if constexpr (Modifier::kMayHide)  // dP may be anything where the key is hidden
                            if (s.c[m][n][e] == 0.0f) x = 0.0f;
                    }
            }
    }

    __device__ __forceinline__ void write_ds(const typename ScoreGrid::Accumulators& x) const {
        write_fragments<config.element, kPitchS>(x, ds + ScoreGrid::row() * kPitchS + ScoreGrid::column());
    }

    // Which keys of this block a query sees, as the product dS K asks for it (KeepAll).
    struct SeenKeys {
        const unsigned* bits;
        __device__ __forceinline__ uint2 masks(int k) const {
            const unsigned sixteen = bits[k / 2] >> (k % 2 * 16) >> (lane_id() % 4 * 2);
            return make_uint2(pair_mask(sixteen), pair_mask(sixteen >> 8));
        }
        __device__ __forceinline__ bool row(int k) const { return (bits[k / 32] >> (k % 32) & 1) != 0; }
    };
    __device__ __forceinline__ unsigned* seen(int parity) const {
        return seen_bits + parity * (round_up(config.Bc, 32) / 32);
    }

private:
    __device__ __forceinline__ void note_seen(const typename ScoreGrid::Accumulators& s, float hidden, int column0,
                                              int parity) const {
        SeenColumns<ScoreGrid::MT, ScoreGrid::NT> columns;
        columns.find(s, hidden);
        if (lane_id() / 4 != 0) return;
#pragma unroll
        for (int n = 0; n < ScoreGrid::NT; ++n) {
            const int column = column0 + Place::column(n, 0);
            if (columns.pair(n) != 0) atomicOr(seen(parity) + column / 32, columns.pair(n) << column % 32);
        }
    }
};

}  // namespace flashtile
