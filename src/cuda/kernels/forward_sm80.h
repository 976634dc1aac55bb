// forward_sm80.h: FlashAttention-2's forward pass (arXiv 2307.08691, Algorithm 1) on mma.sync, ldmatrix and cp.async,
// for every GPU since Ampere and every option. A thread block owns Br queries of one head. Its warps split the queries
// and share K and V (section 3.3), so that softmax needs no exchange between warps. K and V of the next block are
// loaded while one block is worked on.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/dropout.h"
#include "cuda/kernels/parts/common/softmax.h"
#include "cuda/kernels/parts/mma/tile_load.h"
#include "cuda/kernels/parts/mma/tile_store.h"

namespace flashtile {

template <KernelConfig config>
struct ForwardSm80 {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    static constexpr int kThreads = config.warps * 32;
    static constexpr int kWarpRows = config.Br / config.warps;
    static constexpr int MT = kWarpRows / 16, NT = config.Bc / 8;
    static constexpr int kQueryColumns = padded(config, config.head_dim);
    static constexpr int OT = padded(config, config.head_dim_v) / 8;
    static constexpr int kPitchQ = pitch(config, config.head_dim);
    static constexpr int kPitchV = pitch(config, config.head_dim_v);
    static constexpr int kPitchO = larger(kPitchQ, kPitchV);  // of Q's tile, whose rows O takes at the end
    static_assert(kWarpRows % 16 == 0 && config.Bc % 16 == 0, "");

    struct Tiles {
        Scalar *q, *k, *v;

        __device__ __forceinline__ explicit Tiles(unsigned char* memory)
            : q(reinterpret_cast<Scalar*>(memory)),
              k(q + config.Br * kPitchO),
              v(k + config.stages * config.Bc * kPitchQ) {}
        __device__ __forceinline__ Scalar* k_stage(int stage) const { return k + stage * config.Bc * kPitchQ; }
        __device__ __forceinline__ Scalar* v_stage(int stage) const { return v + stage * config.Bc * kPitchV; }
    };

    const KernelParams& params;
    const Sequence seq;
    const Tiles tiles;
    const int i0, i1;              // this block's queries
    const int first_key, end_key;  // keys that any of these queries may see: [first_key, end_key)
    const Index column;            // the first column of V and O that this thread block computes
    const Scalar *k, *v;

    __device__ __forceinline__ ForwardSm80(const KernelParams& p, const Sequence& s, unsigned char* memory, int row,
                                           Index first_column)
        : params(p),
          seq(s),
          tiles(memory),
          i0(row),
          i1(smaller(row + config.Br, s.seqlen_q)),
          first_key(s.first_key<config>(i0)),
          end_key(s.end_key<config>(i1)),
          column(first_column),
          k(rows_of<Scalar>(p.k, s.batch_row, s.kv_head(p), s.first_k)),
          v(rows_of<Scalar>(p.v, s.batch_row, s.kv_head(p), s.first_k) + first_column) {}

    __device__ __forceinline__ void load_queries() const {
        load_tile<Scalar, config.Br, config.head_dim, kPitchO, kThreads, config.vector_bytes>(
            tiles.q, rows_of<Scalar>(params.q, seq.batch_row, seq.h, seq.first_q), params.q.stride_row, i0, 0, i1);
    }

    // Loads keys [j0, j0 + Bc). Those that no query here sees become zero and are not read.
    __device__ __forceinline__ void load_keys(int stage, int j0) const {
        load_tile<Scalar, config.Bc, config.head_dim, kPitchQ, kThreads, config.vector_bytes>(
            tiles.k_stage(stage), k, params.k.stride_row, j0, first_key, end_key);
    }
    __device__ __forceinline__ void load_values(int stage, int j0) const {
        load_tile<Scalar, config.Bc, config.head_dim_v, kPitchV, kThreads, config.vector_bytes>(
            tiles.v_stage(stage), v, params.v.stride_row, j0, first_key, end_key);
    }

    __device__ __forceinline__ void clear_paddings() const {
        clear_padding<Scalar, config.Br, config.head_dim, padded(config, config.head_dim), kPitchO, kThreads>(tiles.q);
        clear_padding<Scalar, config.stages * config.Bc, config.head_dim, padded(config, config.head_dim), kPitchQ,
                      kThreads>(tiles.k);
        clear_padding<Scalar, config.stages * config.Bc, config.head_dim_v, padded(config, config.head_dim_v), kPitchV,
                      kThreads>(tiles.v);
    }

    __device__ __forceinline__ void run() {
        const int warp_i0 = i0 + static_cast<int>(warp_id()) * kWarpRows;
        const int warp_i1 = smaller(warp_i0 + kWarpRows, i1);
        Scalar* warp_q = tiles.q + warp_id() * kWarpRows * kPitchO;

        Fragments<MT, OT> o;
        Softmax<MT, own_units<config>()> softmax;
        o.clear();
        softmax.start(log2_factor<config>(params));

        // Blocks are walked from the last one back, so that a causal problem's mixed blocks come first.
        const auto keys = VisitedBlocks<int>::holding(first_key, end_key, config.Bc);
        const int blocks = keys.count;
        const auto key_of = [&](int n) { return keys.backwards(n); };
        // What no query here sees of a mask function is not loaded either.
        const auto shown = [&](int n) { return BlockMap<config>::shows(params, seq.b, seq.h, i0, key_of(n)); };
        if (blocks > 0) {
            clear_paddings();
            load_queries();
        }
        Fragments<MT, NT> s;
        BiasAndMask<config, MT, NT> bias_and_mask;
        // Whether this warp sees some of a block, which the band and the mask function say.
        const auto sees_some = [&](int n) {
            const int j0 = key_of(n);
            bool sees = shown(n) && seq.template sees_any<config>(warp_i0, warp_i1, j0, j0 + config.Bc);
            if constexpr (config.mask_function) sees = sees && bias_and_mask.find_shown(params, seq, {warp_i0, j0});
            return sees;
        };
        if constexpr (config.stages == 1) {
            // K and V have one buffer each: V is loaded while S is computed, and the next K while P V is.
            if (blocks > 0 && shown(0)) load_keys(0, key_of(0));
            ptx::cp_async_commit();
#pragma unroll 1
            for (int n = 0; n < blocks; ++n) {
                const int j0 = key_of(n);
                const bool sees = sees_some(n);
                ptx::cp_async_wait<0>();
                __syncthreads();  // K has come for every thread, and none still reads V
                if (shown(n)) load_values(0, j0);
                ptx::cp_async_commit();
                if (sees) {
                    bias_and_mask.load(params, seq, {warp_i0, j0});
                    scores(warp_q, 0, s);
                }
                ptx::cp_async_wait<0>();
                __syncthreads();  // V has come for every thread, and none still reads K
                if (n + 1 < blocks && shown(n + 1)) load_keys(0, key_of(n + 1));
                ptx::cp_async_commit();
                if (sees) accumulate(warp_i0, warp_i1, 0, j0, s, bias_and_mask, softmax, o);
            }
        } else {
#pragma unroll
            for (int n = 0; n < config.stages - 1; ++n) {
                if (n < blocks && shown(n)) load_keys(n, key_of(n)), load_values(n, key_of(n));
                ptx::cp_async_commit();
            }
            int stage = 0;
#pragma unroll 1
            for (int n = 0; n < blocks; ++n) {
                const int j0 = key_of(n);
                const bool sees = sees_some(n);
                if (sees) bias_and_mask.load(params, seq, {warp_i0, j0});  // the wait and the product hide the load
                ptx::cp_async_wait<config.stages - 2>();
                __syncthreads();  // block n has come, and none still reads the stage that is filled next
                const int ahead = n + config.stages - 1, other = stage == 0 ? config.stages - 1 : stage - 1;
                if (ahead < blocks && shown(ahead)) load_keys(other, key_of(ahead)), load_values(other, key_of(ahead));
                ptx::cp_async_commit();
                if (sees) {
                    scores(warp_q, stage, s);
                    accumulate(warp_i0, warp_i1, stage, j0, s, bias_and_mask, softmax, o);
                }
                stage = stage == config.stages - 1 ? 0 : stage + 1;
            }
        }
        finish(warp_i0, warp_i1, softmax, o);
    }

    // Line 8: S = Q K^T.
    __device__ __forceinline__ void scores(const Scalar* warp_q, int stage, Fragments<MT, NT>& s) const {
        dot_products<M, kQueryColumns, kPitchO, kPitchQ>(s, warp_q, tiles.k_stage(stage));
    }

    // Lines 9 and 10: the online softmax, O = diag(alpha) O + P V.
    __device__ __forceinline__ void accumulate(int warp_i0, int warp_i1, int stage, int j0, Fragments<MT, NT>& s,
                                               BiasAndMask<config, MT, NT>& bias_and_mask,
                                               Softmax<MT, own_units<config>()>& softmax, Fragments<MT, OT>& o) const {
        const Place place{warp_i0, j0};
        const float factor = log2_factor<config>(params);
        ScoreModifier<config>::make(params, seq)
            .template apply<DerivativeBy::none>(s, params, seq, place, bias_and_mask, s);
        if (!seq.template sees_all<config>(warp_i0, warp_i1, j0, j0 + config.Bc)) apply_band<config>(s, seq, place);

        SeenColumns<MT, NT> seen;
        if constexpr (ScoreModifier<config>::kMayHide) seen.find(s, ScoreModifier<config>::hidden_score(params));
        softmax.template find_maximum<config.lazy_rescale>(s, factor);
        softmax.rescale(o);
        softmax.exponentiate(s, factor);
        if constexpr (config.dropout)
            each_dropped<config, MT, NT>(params, seq, place, [&](int m, int n, int e) { s.c[m][n][e] = 0.0f; });
        const auto add_values = [&](const auto& keep) {
            M::template product_from_registers<kPitchV>(o, M::left_of(s), tiles.v_stage(stage), keep);
        };
        bool all_seen = true;
        if constexpr (ScoreModifier<config>::kMayHide) {
            all_seen = seen.all();
            if (!all_seen) add_values(seen);  // V of a key that is hidden from all rows reads as zero
        }
        if (all_seen) add_values(KeepAll{});
    }

    // Lines 12 to 15: O = O / l, the only division; LSE = m + log l. A query that saw no key has l = 0.
    __device__ __forceinline__ void finish(int warp_i0, int warp_i1, Softmax<MT, own_units<config>()>& softmax,
                                           Fragments<MT, OT>& o) const {
        softmax.finish();
        const float kept = kept_factor<config>(params);
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float l = softmax.l[m][half];
                const float factor = l == 0.0f ? 0.0f : kept / l;
#pragma unroll
                for (int n = 0; n < OT; ++n)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) o.c[m][n][e] *= factor;
                const int i = warp_i0 + Place::row(m, 2 * half);
                if constexpr (config.lse)
                    if (lane_id() % 4 == 0 && i < warp_i1) {
                        const DeviceTensor& lse = params.lse;
                        rows_of<float>(lse, seq.batch_row, seq.h, seq.first_q)[i * lse.stride_row] =
                            softmax.lse(m, half, natural_unit<config>(params));
                    }
            }
        // Only this warp ever read these rows of Q, so O may take their place.
        __syncwarp();
        Scalar* buffer = tiles.q + warp_id() * kWarpRows * kPitchO;
        write_fragments<config.element, kPitchO>(o, buffer);
        __syncwarp();
        Scalar* out =
            rows_of<Scalar>(params.out, seq.batch_row, seq.h, seq.first_q) + warp_i0 * params.out.stride_row + column;
        store_tile<Scalar, kWarpRows, config.head_dim_v, kPitchO, 32, config.vector_bytes>(
            buffer, out, params.out.stride_row, warp_i1 - warp_i0, lane_id());
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one block of queries. A head's last block, which in a causal problem has most to do, comes
// first. Where registers do not hold all dv columns of O, several thread blocks share them, and the last two may both
// compute some columns.
template <KernelConfig config>
__device__ __forceinline__ void forward_sm80(const KernelParams& params) {
    const HeadBlock own(params.seqlen_q, config.Br, config.value_slices);
    const Index slice = blockIdx.x % config.value_slices;
    const Sequence seq = own.of_queries<config>(params);
    const int i0 = static_cast<int>(own.blocks - 1 - own.block()) * config.Br;
    const Index column =
        config.value_slices == 1 ? 0 : smaller(slice * config.head_dim_v, params.head_dim_v - config.head_dim_v);
    if (i0 < seq.seqlen_q) ForwardSm80<config>(params, seq, shared_memory, i0, column).run();
}

}  // namespace flashtile
