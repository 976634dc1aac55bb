// forward_sm90.h: the forward pass for Hopper, in the manner of FlashAttention-3 (arXiv 2407.08608). One warp of a
// thread block, the producer, loads Q and the blocks of K and V with TMA. Two or three warpgroups, the consumers, own
// 64 queries each and multiply with wgmma. A consumer starts S of the next block and P V of this one together, and
// computes the softmax of the next block while P V still runs. Thread blocks are persistent: the producer loads the
// next tile's Q, K and V while the consumers finish this one.
#pragma once

#include "cuda/kernels/parts/hopper/quad_store.h"
#include "cuda/kernels/parts/hopper/query_pipeline_sm90.h"
#include "cuda/kernels/parts/hopper/scaled_softmax.h"
#include "cuda/kernels/parts/hopper/seen_product.h"
#include "cuda/kernels/parts/hopper/sequence_edges.h"
#include "cuda/kernels/parts/hopper/swizzled_tile.h"
#include "cuda/kernels/parts/hopper/wgmma_product.h"

namespace flashtile {

template <KernelConfig config>
struct ForwardSm90 : QueryPipeline<config> {
    using Base = QueryPipeline<config>;
    using Base::Base, Base::kConsumers, Base::kColumns, Base::kColumnsV, Base::NT, Base::OT, Base::kBytesQ;
    using Base::bias_ring, Base::slot, Base::tile_at_hand, Base::release_query, Base::release_keys, Base::drop,
        Base::keys_at_hand;
    using Base::kBytesK, Base::kBytesV, Base::kPartsO;
    using Base::params, Base::q, Base::k, Base::v, Base::bias, Base::out, Base::q_ring, Base::k_ring, Base::v_ring;
    using typename Base::M, typename Base::Tile, typename Base::Slot, typename Base::KeysAtHand;
    static constexpr Element kOutElement = output_element(config);
    using OutScalar = typename Math<kOutElement>::Scalar;
    using Units = ScoreUnits<config>;
    using RowSoftmax = typename Units::RowSoftmax;
    using Optimistic = Optimism<config>;
    static constexpr bool kBrings = config.has_bias_or_mask();
    static constexpr bool kMayHide = kBrings || config.has_functions();
    // Softmax::find_growth
    static constexpr float kAllowedGrowth = kMayHide ? 16.0f : (NT / 2) * RowSoftmax::kHighest;
    using Accumulators = Fragments<1, OT>;
    using Scores = Fragments<1, NT>;
    // Whether TMA brings rows behind a sequence's own.
    static constexpr bool kRowsDiffer = config.packed || config.seqused_q || config.prefixes;
    using LeftP = typename M::template Left<1, NT>;
    // Whether the registers hold P of two blocks beside S, O and about 40 values more. Options take more than that, and
    // wider heads wait for their products anyway.
    static constexpr bool kTwoOfP = !config.softcap && !kBrings && !config.score_function && kColumns <= 128 &&
                                    kColumnsV <= 128 &&
                                    NT * 4 + OT * 4 + 2 * NT * size_of(config.element) + 40 <= Base::kConsumerRegisters;
    // Products of e4m3 take half the cycles for a byte of shared memory, which then is the limit. Where registers hold
    // Q, a quarter of what S = Q K^T reads is saved.
    static constexpr bool kHoldsQuery =
        config.element == Element::e4m3 && kConsumers == 2 &&
        NT * 4 + OT * 4 + NT + kColumns / 8 + (config.scale_blocks ? NT / 2 : 0) + 24 <= Base::kConsumerRegisters;
    using LeftQ = typename M::template Left<1, kHoldsQuery ? padded(config, config.head_dim) / 8 : 4>;
    // In the block on the diagonal a warp may leave out whole groups of 8 kGroup columns.
    static constexpr int kGroupShift = NT % 8 == 0 ? 6 : 4, kGroup = (1 << kGroupShift) / 8;

    __device__ __forceinline__ void consume(int consumer) {
        if (kConsumers > 1 && consumer == kConsumers - 1) pass_turn(consumer);  // the first consumer has the first turn
        while (true) {
            q_ring.wait_full();
            const Slot now = Slot::read(slot());
            if (now.number.head == Slot::kEnd) break;
            if (Optimistic::kAny && now.is_tile() && !now.careful)
                attend<Optimistic::kFirstPass>(consumer);
            else if (now.is_tile())
                attend<Pass::careful>(consumer);
            else
                release_query();
        }
        if (kPartsO > 0 && threadIdx.x % 128 == 0) ptx::tma_wait_read();  // TMA still reads shared memory until then
    }

    // One pass over a tile: the loop of Algorithm 1 over the blocks of keys, in which O += P V of a block runs beside
    // S = Q K^T of the next one.
    template <Pass pass>
    __device__ __forceinline__ void attend(int consumer) {
        constexpr bool kKeepsMaxima = pass == Pass::optimistic && Optimistic::kKeepsMaxima;
        constexpr bool kTrustsHiddenValues = pass == Pass::optimistic && Optimistic::kTrustsHiddenValues;
        const Tile tile = tile_at_hand();
        const unsigned own_q = q + q_ring.stage * kBytesQ + consumer * 64 * kChunkRowBytes;
        const bool elected = threadIdx.x % 128 == 0;
        LeftQ query;
        Accumulators o;
        Scores s;
        LeftP p;
        RowSoftmax softmax;
        Units units;
        float factor[2] = {0.0f, 0.0f};
        // Short tiles of few columns lose more by keeping in step than turns gain.
        const bool turns = kConsumers > 1 && (kColumns > 64 || tile.keys.count >= 12);
        bool held = true;           // what an optimistic pass takes for granted of maxima
        int first_of_kept_max = 1;  // the first block that is not searched for its maximum
        softmax.start(log2_factor<config>(params));
        // Bias and mask of the block at hand. Where registers are left, those of the next block are loaded one step
        // ahead, because loading takes about as long as a step.
        BiasAndMask<config, 1, NT> bias_and_mask, coming;
        constexpr bool kAhead = OT * 4 <= 96;
        const auto bring = [&](int n) {
            if constexpr (kBrings && kAhead) {
                bias_and_mask = coming;
                if (n + 1 < tile.keys.count) coming.load(params, tile.seq, place_of(tile, consumer, n + 1));
            } else if constexpr (kBrings) {
                bias_and_mask.load(params, tile.seq, place_of(tile, consumer, n));
            }
        };

        if (tile.keys.count > 0) {
            // S and P of the first block.
            if constexpr (kRowsDiffer) clear_queries<config>(tile, consumer, own_q);
            if constexpr (kHoldsQuery)
                query = read_left<config.element, config.Br, padded(config, config.head_dim)>(
                    own_q, static_cast<int>(warp_id() % 4) * 16);
            if constexpr (kBrings && kAhead) coming.load(params, tile.seq, place_of(tile, consumer, 0));
            bring(0);
            k_ring.wait_full();
            KeysAtHand keys = keys_at_hand(tile, 0);
            find_values(tile, consumer, keys, bias_and_mask);
            start(s, query, own_q);
            units.start(params, tile.seq, tile.i0 + consumer * 64);  // while S is computed
            find_units(units);
            o.clear();
            ptx::wgmma_wait<0>();
            pin(s);
            release_keys(elected);
            if constexpr (config.band && !config.chunk && !config.hides_first_keys()) {
                exponentiate_first(tile, consumer, keys, s, bias_and_mask, softmax, units);
            } else {
                ready<false>(tile, consumer, 0, keys, s, bias_and_mask, softmax, units);
                softmax.exponentiate(s, units.at_hand(params));
            }
            p = M::left_of(s);
            if constexpr (config.dropout) drop(consumer, p);

            // A later block n: S is computed beside O += P V of block n - 1, whose P is `before`; then, while P V still
            // runs, P of block n becomes `now`. kKept: the maximum of an earlier block is kept. kApart: `now` has
            // registers of its own and is packed at once; otherwise P V must be done first.
            const auto step = [&]<bool kKept, bool kApart>(int n, LeftP& before, LeftP& now) {
                bring(n);
                k_ring.wait_full();
                find_units(units);
                [[maybe_unused]] const int before_at = keys.j0;
                keys = keys_at_hand(tile, n);
                find_values(tile, consumer, keys, bias_and_mask);
                if (turns) wait_turn(consumer);
                start(s, query, own_q);
                v_ring.wait_full();  // while S is computed
                if constexpr (clears_hidden_values(pass))
                    if (n == 1) {
                        const Tile now = tile_at_hand();
                        clear_hidden_values<config>(now, consumer, config.mask_function ? before_at : now.key_of(0),
                                                    v + v_ring.stage * kBytesV);
                    }
                accumulate<pass>(o, before, consumer);
                if (turns) pass_turn(consumer);
                ptx::wgmma_wait<spares_hidden_values(pass) ? 0 : 1>();
                pin(s);
                release_keys(elected);
                ready<kKept>(tile, consumer, n, keys, s, bias_and_mask, softmax, units);
                const auto sum = softmax.exponentiate(s, units.at_hand(params));
                if constexpr (kApart) now = M::left_of(s);
                if constexpr (kKept) {
                    // A row may have seen only one key before its second block, and so its sum may grow more there.
                    softmax.find_growth(sum, !kMayHide && n == first_of_kept_max ? 256.0f : kAllowedGrowth);
                    if (softmax.grows) {
                        held = softmax.lower(s, sum) && held;
                        if constexpr (kApart) now = M::left_of(s);
                    }
                }
                ptx::wgmma_wait<0>();
                pin(o);
                if (elected) v_ring.release();
                v_ring.advance();
                units.keep_output_units(softmax);
                softmax.rescale(o);
                if constexpr (!kApart) now = M::left_of(s);
                if constexpr (config.dropout) this->drop(consumer, now);
            };

            // The later blocks: each is searched for its maximum, but in an optimistic pass only until every row has
            // one.
            int n = 1;
#pragma unroll 1
            for (; n < tile.keys.count &&
                   !(kKeepsMaxima && n >= Units::kSearched && all_of(consumer, softmax.anchored()));
                 ++n)
                step.template operator()<false, false>(n, p, p);
            if constexpr (kKeepsMaxima) {
                first_of_kept_max = n;
                if constexpr (kTwoOfP) {
                    LeftP other;
#pragma unroll 1
                    for (; n + 1 < tile.keys.count; n += 2) {
                        step.template operator()<true, true>(n, p, other);
                        step.template operator()<true, true>(n + 1, other, p);
                    }
                }
#pragma unroll 1
                for (; n < tile.keys.count; ++n) step.template operator()<true, false>(n, p, p);
                if (!__all_sync(~0u, held)) Slot::fail(slot());
            }

            // O += P V of the last block, and the result.
            const Tile done = end_of(tile);
            if constexpr (!kTrustsHiddenValues) release_query();
            v_ring.wait_full();
            if constexpr (clears_hidden_values(pass))
                clear_hidden_values<config>(done, consumer,
                                            config.mask_function ? keys.j0 : done.key_of(done.keys.count - 1),
                                            v + v_ring.stage * kBytesV);
            accumulate<pass>(o, p, consumer);
            finish_rows(done, consumer, softmax, units, factor);
            ptx::wgmma_wait<0>();
            pin(o);
            if (elected) v_ring.release();
            v_ring.advance();
            if constexpr (kTrustsHiddenValues) {
                if (!__all_sync(~0u, finite(o))) Slot::fail(slot());
                release_query();
            }
            store<pass>(done, consumer, softmax, units, factor, o);
        } else {  // no row sees a key
            release_query();
            o.clear();
            finish_rows(tile, consumer, softmax, units, factor);
            store<pass>(tile, consumer, softmax, units, factor, o);
        }
    }

    // The tile, read again where its lengths would otherwise stay in registers. It can be read until its Q is released.
    __device__ __forceinline__ Tile end_of(const Tile& tile) const {
        if constexpr (config.maps_hold_hidden_keys() || kMayHide) return tile_at_hand();
        return tile;
    }

    // Consumers start their products in turns (FlashAttention-3's ping-pong), so that while one's run the others work
    // on their softmax. A consumer waits at its barrier for the 128 threads of the one before it.
    __device__ __forceinline__ void wait_turn(int consumer) const {
        ptx::named_barrier(barriers::kTurn + consumer, barriers::kTwoWarpgroups);
    }
    __device__ __forceinline__ void pass_turn(int consumer) const {
        ptx::named_barrier_arrive(barriers::kTurn + (consumer + 1) % kConsumers, barriers::kTwoWarpgroups);
    }

    // What takes this block's scores to log2 units, where that differs from block to block.
    __device__ __forceinline__ void find_units(Units& units) const {
        units.find(this->told_scales + k_ring.stage * told_scales_bytes(config));
    }

    // Line 8: S = Q K^T, started.
    __device__ __forceinline__ void start(Scores& s, [[maybe_unused]] const LeftQ& query, unsigned own_q) const {
        constexpr int kInner = padded(config, config.head_dim);
        const unsigned keys = k + k_ring.stage * kBytesK;
        pin(s);
        ptx::wgmma_fence();
        if constexpr (kHoldsQuery)
            start_scores<config.element, kInner, config.Bc>(s, query, keys);
        else
            start_scores<config.element, kInner, config.Br, config.Bc>(s, own_q, keys);
        ptx::wgmma_commit();
    }

    // A careful pass leaves V of hidden keys out of its products.
    __device__ static constexpr bool spares_hidden_values(Pass pass) {
        return pass == Pass::careful && Optimistic::kTrustsHiddenValues;
    }

    // Where TMA brings V of hidden keys and the product would take it. (What is transposed is cleared by preparers.)
    __device__ static constexpr bool clears_hidden_values(Pass pass) {
        return config.maps_hold_hidden_keys() && !Base::kTransposes && !spares_hidden_values(pass);
    }

    // Line 10: O += P V. The product is started, or, where V of hidden keys is left out, done.
    template <Pass pass>
    __device__ __forceinline__ void accumulate(Accumulators& o, const typename M::template Left<1, NT>& p,
                                               int consumer) const {
        if constexpr (spares_hidden_values(pass)) {
            add_seen<config.element, config.Bc, NT>(o, p, v + v_ring.stage * kBytesV);
            // all four warps have read V before one thread releases it
            ptx::named_barrier(barriers::kConsumer + consumer, barriers::kWarpgroup);
            return;
        }
        pin(o);
        ptx::wgmma_fence();
        start_output<config.element, config.Bc, NT>(o, p, v + v_ring.stage * kBytesV);
        ptx::wgmma_commit();
    }

    // Whether `mine` is true in every thread of a consumer. Its four warps must reach the same wgmma instruction: when
    // they took different branches, with P in different registers, the product was wrong. The vote tells the compiler
    // that the lanes of a warp agree, which it cannot know from the barrier.
    __device__ static __forceinline__ bool all_of(int consumer, bool mine) {
        return __all_sync(~0u, ptx::named_barrier_all(barriers::kConsumer + consumer, barriers::kWarpgroup, mine));
    }

    __device__ static __forceinline__ bool finite(const Accumulators& o) {
        bool all = true;
        each_score<1, OT>([&](int m, int n, int e) { all = all && fabsf(o.c[m][n][e]) < infinity(); });
        return all;
    }

    __device__ static __forceinline__ int warp_row(const Tile& tile, int consumer) {
        return tile.i0 + consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
    }

    __device__ static __forceinline__ Place place_of(const Tile& tile, int consumer, int n) {
        return {warp_row(tile, consumer), tile.key_of(n)};
    }

    // Applies the options to all scores of a block, and hides what the mask function does, and keys that lie in no
    // page.
    __device__ __forceinline__ void modify(const Tile& tile, const Place& place, const KeysAtHand& keys,
                                           BiasAndMask<config, 1, NT>& bias_and_mask, Scores& s) {
        if constexpr (config.bias_mapped) {
            bias_ring.wait_full();
            bias_and_mask.bias_tile = bias;
            bias_and_mask.bias_row = place.i0 - tile.i0;
        }
        ScoreModifier<config>::make(params, tile.seq)
            .template apply<DerivativeBy::none>(s, params, tile.seq, place, bias_and_mask, s);
        if constexpr (config.mask_function)
            if (!keys.whole) bias_and_mask.shown.hide_others(s);
        if (config.paged && keys.unnamed != 0)
            each_score<1, NT>([&](int m, int n, int e) {
                if ((keys.unnamed >> n & 1) != 0) s.c[m][n][e] = -infinity();
            });
        if constexpr (config.bias_mapped) {
            bias_ring.release_by_warp();
            bias_ring.advance();
        }
    }

    // In a mixed block, what the mask function shows, and in any what a score function adds by the diagonal: while
    // another consumer has its turn, and S leaves registers for it.
    __device__ __forceinline__ void find_values(const Tile& tile, int consumer, const KeysAtHand& keys,
                                                BiasAndMask<config, 1, NT>& bias_and_mask) const {
        if constexpr (ScoreModifier<config>::kAddsByDiagonal)
            bias_and_mask.by_diagonal.find(params, tile.seq, {warp_row(tile, consumer), keys.j0});
        if constexpr (config.mask_function)
            if (!keys.whole) bias_and_mask.find_shown(params, tile.seq, {warp_row(tile, consumer), keys.j0});
    }

    // The first block of a tile is the one that a causal mask's diagonal crosses. Its warps see different columns of
    // it, and each leaves out those that none of its rows sees.
    __device__ __forceinline__ void exponentiate_first(const Tile& tile, int consumer, const KeysAtHand& keys,
                                                       Scores& s, BiasAndMask<config, 1, NT>& bias_and_mask,
                                                       RowSoftmax& softmax, const Units& units) {
        const Place place{warp_row(tile, consumer), keys.j0};
        modify(tile, place, keys, bias_and_mask, s);
        const int all =
            config.window ? 0 : tile.seq.template end_key<config>(query_end<config>(place.i0 + 1)) - place.j0;
        const int any = tile.seq.template end_key<config>(query_end<config>(place.i0 + 16)) - place.j0;
        const int first_group = __shfl_sync(~0u, all >> kGroupShift, 0);
        const int seen = __shfl_sync(~0u, (any + 8 * kGroup - 1) >> kGroupShift, 0);
        apply_band<config, kGroup>(s, tile.seq, place, first_group, seen);
        softmax.template find_maximum<config.lazy_rescale, kGroup>(s, units.at_hand(params), seen);
        softmax.template exponentiate_seen<kGroup>(s, units.at_hand(params), seen);
    }

    __device__ __forceinline__ static void hide(const Tile& tile, const Place& place, Scores& s) {
        if (!tile.seq.template sees_all<config>(place.i0, smaller(place.i0 + 16, tile.i1), place.j0,
                                                place.j0 + config.Bc))
            apply_band<config>(s, tile.seq, place);
    }

    // Line 9 up to P = 2^(S - m): options, masks, and the maximum unless that of an earlier block is kept.
    template <bool kKept>
    __device__ __forceinline__ void ready(const Tile& tile, int consumer, int n, const KeysAtHand& keys, Scores& s,
                                          BiasAndMask<config, 1, NT>& bias_and_mask, RowSoftmax& softmax,
                                          const Units& units) {
        const Place place{warp_row(tile, consumer), keys.j0};
        modify(tile, place, keys, bias_and_mask, s);
        // After a block in which every row saw a key, only the left side of a window hides keys, or first_k, or the end
        // of a prefix, which is in the last block.
        constexpr bool kBandMayHide = !kKept || config.window || config.first_k;
        // What chunks, first_k and prefixes take of the tile would otherwise stay in registers.
        if constexpr (kBandMayHide && (config.chunk || config.hides_first_keys()))
            hide(tile_at_hand(), place, s);
        else if constexpr (kBandMayHide)
            hide(tile, place, s);
        else if (config.prefixes && n + 1 == tile.keys.count)
            hide(tile_at_hand(), place, s);
        if constexpr (!kKept) softmax.template find_maximum<config.lazy_rescale>(s, units.at_hand(params));
    }

    // Lines 13 to 15, while the last product runs: LSE = m + log l, and the factor of O, 1 / l, which is the only
    // division. l is large enough for the approximate reciprocal, since it is at least the row's greatest P.
    __device__ __forceinline__ void finish_rows(const Tile& tile, int consumer, RowSoftmax& softmax, const Units& units,
                                                float (&factor)[2]) const {
        softmax.finish();
        const float kept = kept_factor<config>(params);
        const int warp_i0 = warp_row(tile, consumer);
        const Sequence& seq = tile.seq;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float l = softmax.l[0][half];
            factor[half] = l == 0.0f ? 0.0f : units.of_output(kept * ptx::reciprocal(l));
            const int row = warp_i0 + Place::row(0, 2 * half), of_group = row % config.group_rows;
            if constexpr (config.sinks)
                if (is_row(tile, row))
                    factor[half] = units.of_output(row_factor<config>(params, seq.h + of_group, softmax.m[0][half], l));
            if constexpr (config.lse)
                if (lane_id() % 4 == 0 && is_row(tile, row) && (!config.shares || tile.part == TileNumber::kWhole)) {
                    const DeviceTensor& lse = params.lse;
                    rows_of<float>(lse, seq.batch_row, seq.h + of_group,
                                   seq.first_q)[query_of<config>(row) * lse.stride_row] =
                        config.sinks
                            ? static_cast<float>(row_lse<config>(params, seq.h + of_group, softmax.m[0][half], l))
                            : softmax.lse(0, half, natural_unit<config>(params));
                }
        }
    }

    // Line 12: O = O / l.
    template <Pass pass>
    __device__ __forceinline__ void store(const Tile& tile, int consumer, [[maybe_unused]] const RowSoftmax& softmax,
                                          [[maybe_unused]] const Units& units, const float (&factor)[2],
                                          const Accumulators& o) const {
        if constexpr (config.shares) {
            if (tile.part != TileNumber::kWhole) return store_part(tile, consumer, softmax, units, o);
            const int i0 = warp_row(tile, consumer);
            return store_rows_at<kOutElement>(
                o, factor, config.head_dim_v, [&](int row) { return is_row(tile, i0 + row); },
                [&](int row) { return row_of(tile, i0 + row); });
        }
        // TMA knows where a tensor ends, but not where a sequence does.
        if constexpr (kPartsO > 0)
            if (!kRowsDiffer || tile.i0 + consumer * 64 + 64 <= tile.i1)
                return store_by_tma<pass>(tile, consumer, factor, o);
        const int i0 = warp_row(tile, consumer);
        const DeviceTensor& to = params.out;
        store_rows<kOutElement, config.head_dim_v>(
            o, factor, rows_of<OutScalar>(to, tile.seq.batch_row, tile.seq.h, tile.seq.first_q) + i0 * to.stride_row,
            to.stride_row, tile.i1 - i0);
    }

    // Whether a row of the tile is one of out, and where it lies there.
    __device__ __forceinline__ bool is_row(const Tile& tile, int row) const {
        return row < tile.i1 && (config.group_rows == 1 || row % config.group_rows < params.group);
    }
    __device__ __forceinline__ OutScalar* row_of(const Tile& tile, int row) const {
        return rows_of<OutScalar>(params.out, tile.seq.batch_row, tile.seq.h + row % config.group_rows,
                                  tile.seq.first_q + query_of<config>(row));
    }

    // What a piece of the tile's keys comes to, for combine_shares.h: m, l, and O as it stands.
    __device__ __forceinline__ void store_part(const Tile& tile, int consumer, const RowSoftmax& softmax,
                                               const Units& units, const Accumulators& o) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp_row(tile, consumer) + Place::row(0, 2 * half);
            if (!is_row(tile, row)) continue;
            const Index part = Index{tile.part} + (row - tile.i0);
            if (lane_id() % 4 == 0)
                *reinterpret_cast<float2*>(params.ws_part_ml + 2 * part) =
                    make_float2(softmax.m[0][half], softmax.l[0][half]);
            float* const to = params.ws_part_o + part * config.head_dim_v;
#pragma unroll
            for (int n = 0; n < OT; ++n)
                if (const int column = Place::column(n, 0); column < config.head_dim_v)
                    *reinterpret_cast<float2*>(to + column) =
                        make_float2(units.of_output(o.c[0][n][2 * half]), units.of_output(o.c[0][n][2 * half + 1]));
        }
    }

    // The same by way of shared memory, so that it leaves under the next tile. TMA's writes have no order: a careful
    // pass that replaces an optimistic one's results waits until those are written.
    template <Pass pass>
    __device__ __forceinline__ void store_by_tma(const Tile& tile, int consumer, const float (&factor)[2],
                                                 const Accumulators& o) const {
        constexpr bool kReplaces = pass == Pass::careful && Optimistic::kAny;
        constexpr int kColumnsOfPart = kColumnsV / larger(kPartsO, 1);
        const unsigned own = out + consumer * 64 * kChunkRowBytes, barrier = barriers::kConsumer + consumer;
        const bool elected = threadIdx.x % 128 == 0;
#pragma unroll
        for (int part = 0; part < kPartsO; ++part) {
            if (elected && kReplaces) ptx::tma_wait_written();
            if (elected && !kReplaces) ptx::tma_wait_read();
            ptx::named_barrier(barrier, barriers::kWarpgroup);  // what this consumer stored last has been read
            write_warp_rows<kOutElement, config.Br, kPartsO>(o, factor, own, static_cast<int>(warp_id() % 4) * 16,
                                                             part);
            ptx::fence_async_proxy();
            ptx::named_barrier(barrier, barriers::kWarpgroup);  // all four warps have written
            if (elected)
                store_queries<config>(own, params.out_map, part * kColumnsOfPart, kColumnsOfPart,
                                      static_cast<int>(tile.seq.first_q) * config.group_rows + tile.i0 + consumer * 64,
                                      tile.map_head(params), static_cast<int>(tile.seq.batch_row));
        }
    }
};

template <KernelConfig config>
__device__ __forceinline__ void forward_sm90(const KernelParams& params) {
    run_forward_sm90<ForwardSm90<config>, config>(params);
}

}  // namespace flashtile
