// split_forward_sm80.h: forward_sm80.h's algorithm for serving, on mma.sync, ldmatrix and cp.async. A thread block owns
// Br rows, which are queries of one head, or of all heads that share a key head. Keys lie one after the other, in rows
// of a cache or in its pages. Where queries are few, the keys are split over thread blocks (section 3.2 of the paper),
// and combine.h adds up what these leave in the workspace. It is to take forward_sm80.h's place once a GPU has run it.
// e4m3 tensors become 16-bit tiles on their way: blocks of keys lie in shared memory as they come, and all threads
// widen the one that is next.
#pragma once

#include "cuda/kernels/parts/common/dropout.h"
#include "cuda/kernels/parts/common/softmax.h"
#include "cuda/kernels/parts/mma/key_places.h"
#include "cuda/kernels/parts/mma/raw_keys.h"
#include "cuda/kernels/parts/mma/tile_load.h"
#include "cuda/kernels/parts/mma/tile_scales.h"
#include "cuda/kernels/parts/mma/tile_store.h"
#include "cuda/kernels/parts/schedule/key_split.h"

namespace flashtile {

template <KernelConfig config>
struct SplitForwardSm80 {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Query = typename Math<config.converts_q ? Element::e4m3 : config.element>::Scalar;  // as they lie in memory
    using Key = typename Math<config.converts_kv ? Element::e4m3 : config.element>::Scalar;
    static constexpr Element kOutElement = output_element(config);
    using Out = typename Math<kOutElement>::Scalar;
    static constexpr int kThreads = config.warps * 32;
    static constexpr int kWarpRows = config.Br / config.warps;
    static constexpr int MT = kWarpRows / 16, NT = config.Bc / 8;
    static constexpr int kQueryColumns = padded(config, config.head_dim);
    static constexpr int OT = padded(config, config.head_dim_v) / 8;
    static constexpr int kPitchQ = pitch(config, config.head_dim);
    static constexpr int kPitchV = pitch(config, config.head_dim_v);
    static constexpr int kPitchO = larger(kPitchQ, kPitchV);  // of Q's tile, whose rows O takes at the end
    using Scales = TileScales<config, MT, NT, OT>;
    static_assert(kWarpRows % 16 == 0 && config.Bc % 16 == 0, "");

    struct Tiles {
        static constexpr int kStages = config.converts_kv ? 1 : config.stages;
        Scalar *q, *k, *v;
        RawKeys<config> raw;
        KeyPlaces<config> places;

        __device__ __forceinline__ explicit Tiles(unsigned char* memory)
            : q(reinterpret_cast<Scalar*>(memory)),
              k(q + config.Br * kPitchO),
              v(k + kStages * config.Bc * kPitchQ),
              raw{reinterpret_cast<unsigned char*>(v + kStages * config.Bc * kPitchV)},
              places{reinterpret_cast<int2*>(memory + forward_tiles_bytes(config))} {}
        __device__ __forceinline__ Scalar* k_stage(int stage) const { return k + stage * config.Bc * kPitchQ; }
        __device__ __forceinline__ Scalar* v_stage(int stage) const { return v + stage * config.Bc * kPitchV; }
    };

    const KernelParams& params;
    const Sequence seq;  // of the group's first head, where heads share the tile
    const Tiles tiles;
    const int i0, i1;              // this block's rows
    const KeySplit split;          // the keys are those of a split
    const int first_key, end_key;  // keys that any of these rows may see: [first_key, end_key)
    const Index column;            // the first column of V and O that this thread block computes
    const Key *k, *v;

    __device__ __forceinline__ SplitForwardSm80(const KernelParams& p, const Sequence& s, unsigned char* memory,
                                                int row, Index first_column, const KeySplit& key_split)
        : params(p),
          seq(s),
          tiles(memory),
          i0(row),
          i1(smaller(row + config.Br, s.seqlen_q * config.group_rows)),
          split(key_split),
          first_key(split.later_of<config>(s.first_key<config>(query_of<config>(i0)))),
          end_key(split.sooner_of<config>(s.end_key<config>(query_end<config>(i1)))),
          column(first_column),
          k(keys_of(p.k)),
          v(keys_of(p.v) + first_column) {}

    // Where the sequence's first key of this head lies, or the head's rows of the first page.
    __device__ __forceinline__ const Key* keys_of(const DeviceTensor& x) const {
        return rows_of<Key>(x, config.paged ? 0 : seq.key_row, seq.kv_head(params), seq.first_k);
    }
    // Where a row of the tile lies in q or out.
    template <class T>
    __device__ __forceinline__ T* row_of(const DeviceTensor& x, int row) const {
        return rows_of<T>(x, seq.batch_row, head_of(row), seq.first_q) + query_of<config>(row) * x.stride_row;
    }
    __device__ __forceinline__ Index head_of(int row) const {
        return config.group_rows == 1 ? seq.h : seq.h + row % config.group_rows;
    }

    __device__ __forceinline__ void load_queries() const {
        if constexpr (config.converts_q)
            load_widened<config.element, config.Br, config.head_dim, kPitchO, kThreads, config.vector_bytes>(
                tiles.q, [&](int row) { return i0 + row < i1 ? row_of<Query>(params.q, i0 + row) : nullptr; });
        else if constexpr (config.group_rows == 1)
            load_tile<Scalar, config.Br, config.head_dim, kPitchO, kThreads, config.vector_bytes>(
                tiles.q, rows_of<Scalar>(params.q, seq.batch_row, seq.h, seq.first_q), params.q.stride_row, i0, 0, i1);
        else
            load_rows<Scalar, config.Br, config.head_dim, kPitchO, kThreads, config.vector_bytes>(
                tiles.q, static_cast<const Scalar*>(params.q.data),
                [&](int row) { return i0 + row < i1 ? row_of<Scalar>(params.q, i0 + row) : nullptr; });
    }

    // Loads block n of the walk, the keys [j0, j0 + Bc). Those that no query here sees become zero and are not read.
    __device__ __forceinline__ void load_keys(int stage, int n, int j0) const {
        load_block<config.head_dim, kPitchQ>(tiles.k_stage(stage), k, params.k, n, j0);
    }
    __device__ __forceinline__ void load_values(int stage, int n, int j0) const {
        load_block<config.head_dim_v, kPitchV>(tiles.v_stage(stage), v, params.v, n, j0);
    }
    template <int kColumns, int kPitch>
    __device__ __forceinline__ void load_block(Key* tile, const Key* from, const DeviceTensor& x, int n, int j0) const {
        constexpr int kVectorBytes = config.converts_kv ? raw_vector_bytes(config) : config.vector_bytes;
        if constexpr (config.paged) {
            const int2* const places = tiles.places.block(n);
            load_rows<Key, config.Bc, kColumns, kPitch, kThreads, kVectorBytes>(tile, from, [&](int row) {
                const int2 place = places[row];
                return place.x < 0 ? nullptr : from + place.x * x.stride_batch + place.y * x.stride_row;
            });
        } else {
            load_tile<Key, config.Bc, kColumns, kPitch, kThreads, kVectorBytes>(tile, from, x.stride_row, j0, first_key,
                                                                                end_key);
        }
    }

    // The same of e4m3, with the scales of blocks, to a stage of what has not been widened.
    __device__ __forceinline__ void load_raw(int stage, int n, int j0) const {
        unsigned char* const to_k = tiles.raw.keys(stage);
        load_block<config.head_dim, raw_pitch(config.head_dim)>(to_k, k, params.k, n, j0);
        load_block<config.head_dim_v, raw_pitch(config.head_dim_v)>(tiles.raw.values(stage), v, params.v, n, j0);
        if constexpr (config.scale_blocks) {
            load_scales(tiles.raw.scales(stage), params.k_scale, n, j0);
            load_scales(tiles.raw.scales(stage) + config.Bc, params.v_scale, n, j0);
        }
    }
    __device__ __forceinline__ void load_scales(float* to, const DeviceScales& x, int n, int j0) const {
        [[maybe_unused]] const RowScales in_rows = key_scales<config>(params, x, seq);
        for (int row = static_cast<int>(threadIdx.x); row < config.Bc; row += kThreads) {
            const int j = j0 + row;
            const float* from = nullptr;
            if (x.data == nullptr || j < first_key || j >= end_key) {
                to[row] = j >= first_key && j < end_key ? 1.0f : 0.0f;
                continue;
            }
            if constexpr (config.paged) {
                const int2 place = tiles.places.block(n)[row];
                if (place.x >= 0)
                    from = x.data + place.x * x.stride_batch + seq.kv_head(params) * x.stride_head +
                           (place.y >> params.scale_shift) * x.stride_block;
            } else {
                from = in_rows.data + (j >> params.scale_shift) * in_rows.stride;
            }
            copy_vector<4>(to + row, from != nullptr ? from : x.data, from != nullptr);
        }
    }

    __device__ __forceinline__ void clear_paddings() const {
        clear_padding<Scalar, config.Br, config.head_dim, padded(config, config.head_dim), kPitchO, kThreads>(tiles.q);
        clear_padding<Scalar, Tiles::kStages * config.Bc, config.head_dim, padded(config, config.head_dim), kPitchQ,
                      kThreads>(tiles.k);
        clear_padding<Scalar, Tiles::kStages * config.Bc, config.head_dim_v, padded(config, config.head_dim_v), kPitchV,
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
        Scales scales{tiles.raw.scales(), {}};
        scales.start(params, seq, warp_i0, i1, [&](int row) { return head_of(row); });

        // Blocks are walked from the last one back, so that a causal problem's mixed blocks come first.
        const auto keys = VisitedBlocks<int>::holding(first_key, end_key, config.Bc);
        const int blocks = keys.count;
        const auto key_of = [&](int n) { return keys.backwards(n); };
        if (blocks > 0) {
            clear_paddings();
            load_queries();
        }
        // Where keys lie in pages, places of a block are found a step before it is loaded.
        const auto find_places = [&](int n) {
            if constexpr (config.paged)
                if (n < blocks) tiles.places.find(params, seq, n, key_of(n), first_key, end_key);
        };
        Fragments<MT, NT> s;
        BiasAndMask<config, MT, NT> bias_and_mask;
        // Whether this warp sees some of a block, which the band and the mask function say.
        const auto sees_some = [&](int j0) {
            bool sees = seq.template sees_any<config>(warp_i0, warp_i1, j0, j0 + config.Bc);
            if constexpr (config.mask_function) sees = sees && bias_and_mask.find_shown(params, seq, {warp_i0, j0});
            return sees;
        };
        if constexpr (config.converts_kv) {
            const auto load = [&](int n) {
                if (n < blocks) load_raw(n % config.stages, n, key_of(n));
                ptx::cp_async_commit();
            };
#pragma unroll
            for (int n = 0; n <= config.stages; ++n) find_places(n);
            __syncthreads();  // these blocks' places are there
#pragma unroll
            for (int n = 0; n < config.stages; ++n) load(n);
#pragma unroll 1
            for (int n = 0; n < blocks; ++n) {
                const int j0 = key_of(n);
                const bool sees = sees_some(j0);
                if (sees) bias_and_mask.load(params, seq, {warp_i0, j0});
                ptx::cp_async_wait<config.stages - 1>();
                __syncthreads();  // block n has come for every thread, and none still reads the tile
                tiles.raw.widen_block(n % config.stages, tiles.k, tiles.v);
                __syncthreads();  // the tile is there, and none still reads the stage
                load(n + config.stages);
                find_places(n + config.stages + 1);
                if (sees) {
                    this->scores(warp_q, 0, s);
                    accumulate(warp_i0, warp_i1, 0, n, j0, s, bias_and_mask, softmax, scales, o);
                }
            }
        } else if constexpr (config.stages == 1) {
            // K and V have one buffer each: V is loaded while S is computed, and the next K while P V is.
            find_places(0);
            if constexpr (config.paged) __syncthreads();  // the first block's places are there
            if (blocks > 0) load_keys(0, 0, key_of(0));
            ptx::cp_async_commit();
#pragma unroll 1
            for (int n = 0; n < blocks; ++n) {
                const int j0 = key_of(n);
                const bool sees = sees_some(j0);
                ptx::cp_async_wait<0>();
                __syncthreads();  // K has come for every thread, and none still reads V
                load_values(0, n, j0);
                find_places(n + 1);
                ptx::cp_async_commit();
                if (sees) {
                    bias_and_mask.load(params, seq, {warp_i0, j0});
                    scores(warp_q, 0, s);
                }
                ptx::cp_async_wait<0>();
                __syncthreads();  // V has come for every thread, and none still reads K
                if (n + 1 < blocks) load_keys(0, n + 1, key_of(n + 1));
                ptx::cp_async_commit();
                if (sees) accumulate(warp_i0, warp_i1, 0, n, j0, s, bias_and_mask, softmax, scales, o);
            }
        } else {
#pragma unroll
            for (int n = 0; n < config.stages; ++n) find_places(n);
            if constexpr (config.paged) __syncthreads();  // these blocks' places are there
#pragma unroll
            for (int n = 0; n < config.stages - 1; ++n) {
                if (n < blocks) load_keys(n, n, key_of(n)), load_values(n, n, key_of(n));
                ptx::cp_async_commit();
            }
            int stage = 0;
#pragma unroll 1
            for (int n = 0; n < blocks; ++n) {
                const int j0 = key_of(n);
                const bool sees = sees_some(j0);
                if (sees) bias_and_mask.load(params, seq, {warp_i0, j0});  // the wait and the product hide the load
                ptx::cp_async_wait<config.stages - 2>();
                __syncthreads();  // block n has come, and none still reads the stage that is filled next
                const int ahead = n + config.stages - 1, other = stage == 0 ? config.stages - 1 : stage - 1;
                if (ahead < blocks) load_keys(other, ahead, key_of(ahead)), load_values(other, ahead, key_of(ahead));
                ptx::cp_async_commit();
                find_places(ahead + 1);
                if (sees) {
                    scores(warp_q, stage, s);
                    accumulate(warp_i0, warp_i1, stage, n, j0, s, bias_and_mask, softmax, scales, o);
                }
                stage = stage == config.stages - 1 ? 0 : stage + 1;
            }
        }
        finish(warp_i0, warp_i1, softmax, scales, o);
    }

    // Line 8: S = Q K^T.
    __device__ __forceinline__ void scores(const Scalar* warp_q, int stage, Fragments<MT, NT>& s) const {
        dot_products<M, kQueryColumns, kPitchO, kPitchQ>(s, warp_q, tiles.k_stage(stage));
    }

    // Lines 9 and 10: the online softmax, O = diag(alpha) O + P V, with block n of the walk.
    __device__ __forceinline__ void accumulate(int warp_i0, int warp_i1, int stage, [[maybe_unused]] int n, int j0,
                                               Fragments<MT, NT>& s, BiasAndMask<config, MT, NT>& bias_and_mask,
                                               Softmax<MT, own_units<config>()>& softmax, Scales& scales,
                                               Fragments<MT, OT>& o) const {
        const Place place{warp_i0, j0};
        const float factor = log2_factor<config>(params);
        scales.scale_scores(s);
        ScoreModifier<config>::make(params, seq)
            .template apply<DerivativeBy::none>(s, params, seq, place, bias_and_mask, s);
        if (!seq.template sees_all<config>(warp_i0, warp_i1, j0, j0 + config.Bc)) apply_band<config>(s, seq, place);
        if constexpr (config.paged) tiles.places.hide_unnamed(s, n);

        SeenColumns<MT, NT> seen;
        if constexpr (ScoreModifier<config>::kMayHide) seen.find(s, ScoreModifier<config>::hidden_score(params));
        softmax.template find_maximum<config.lazy_rescale>(s, factor);
        softmax.rescale(o);
        softmax.exponentiate(s, factor);
        scales.scale_probabilities(s, o);
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
                                           const Scales& scales, Fragments<MT, OT>& o) const {
        softmax.finish();
        if constexpr (config.split)
            if (split.count > 1) return store_part(warp_i0, warp_i1, softmax, scales, o);
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_i0 + Place::row(m, 2 * half), i = query_of<config>(row);
                const Index h = head_of(row);
                const float m_row = softmax.m[m][half], l = softmax.l[m][half];
                const float factor = scales.of_output(row_factor<config>(params, row < warp_i1 ? h : seq.h, m_row, l));
#pragma unroll
                for (int n = 0; n < OT; ++n)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) o.c[m][n][e] *= factor;
                if constexpr (config.lse)
                    if (lane_id() % 4 == 0 && row < warp_i1) {
                        const DeviceTensor& lse = params.lse;
                        rows_of<float>(lse, seq.batch_row, h, seq.first_q)[i * lse.stride_row] =
                            static_cast<float>(row_lse<config>(params, h, m_row, l));
                    }
            }
        const auto place_of = [&](int row) { return row_of<Out>(params.out, warp_i0 + row) + column; };
        if constexpr (sizeof(Out) > sizeof(Scalar)) {  // there is no room for such rows
            store_fragments<config.head_dim_v>(o, warp_i1 - warp_i0, place_of);
            return;
        } else {
            // Only this warp ever read these rows of Q, so O may take their place.
            __syncwarp();
            Out* buffer = tiles.q + warp_id() * kWarpRows * kPitchO;
            write_fragments<kOutElement, kPitchO>(o, buffer);
            __syncwarp();
            if constexpr (config.group_rows == 1)
                store_tile<Out, kWarpRows, config.head_dim_v, kPitchO, 32, config.vector_bytes>(
                    buffer, place_of(0), params.out.stride_row, warp_i1 - warp_i0, lane_id());
            else
                store_rows<Out, kWarpRows, config.head_dim_v, kPitchO, 32, config.vector_bytes>(
                    buffer, warp_i1 - warp_i0, lane_id(), place_of);
        }
    }

    // What a split comes to, for combine.h: m, l, and O as it stands.
    __device__ __forceinline__ void store_part(int warp_i0, int warp_i1,
                                               const Softmax<MT, own_units<config>()>& softmax, const Scales& scales,
                                               const Fragments<MT, OT>& o) const {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_i0 + Place::row(m, 2 * half);
                if (row >= warp_i1) continue;
                const Index part = part_of(params, seq.b, query_of<config>(row), head_of(row), split.n);
                if (lane_id() % 4 == 0) {
                    params.ws_part_ml[2 * part] = softmax.m[m][half];
                    params.ws_part_ml[2 * part + 1] = softmax.l[m][half];
                }
                float* const to = params.ws_part_o + part * params.head_dim_v + column;
#pragma unroll
                for (int n = 0; n < OT; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (Place::column(n, e) < config.head_dim_v)
                            to[Place::column(n, e)] = scales.of_output(o.c[m][n][2 * half + e]);
            }
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one block of rows. A head's last block, which in a causal problem has most to do, comes
// first. Where registers do not hold all dv columns of O, several thread blocks share them, and the last two may both
// compute some columns. Where keys are split, thread blocks walk through the splits of all tiles.
template <KernelConfig config>
__device__ __forceinline__ void split_forward_sm80(const KernelParams& params) {
    const auto attend = [&](const Sequence& seq, Index block, Index slice, const KeySplit& split) {
        const int i0 = static_cast<int>(block) * config.Br;
        const Index column =
            config.value_slices == 1 ? 0 : smaller(slice * config.head_dim_v, params.head_dim_v - config.head_dim_v);
        if (i0 < seq.seqlen_q * config.group_rows)
            SplitForwardSm80<config>(params, seq, shared_memory, i0, column, split).run();
    };
    if constexpr (config.split) {
        const SplitSchedule<config> schedule(params);
        unsigned* const next = reinterpret_cast<unsigned*>(shared_memory + split_next_offset(config));
        const unsigned count = schedule.count();
        unsigned n = blockIdx.x;
        for (unsigned turn = 0; n < count; turn ^= 1) {
            if (threadIdx.x == 0) next[turn] = schedule.after(n);
            const SplitTile tile = schedule[n];
            const Sequence seq = schedule.sequence(tile);
            const KeySplit split = KeySplit::of(params, seq, tile.split);
            if (split.n < split.count) attend(seq, tile.block, tile.slice, split);
            __syncthreads();  // all warps are done with the shared memory that the next tile fills
            n = next[turn];
        }
    } else {
        const HeadBlock own(params.seqlen_q * config.group_rows, config.Br, config.value_slices);
        attend(own.of_rows<config>(params), own.blocks - 1 - own.block(), blockIdx.x % config.value_slices, {});
    }
}

}  // namespace flashtile
