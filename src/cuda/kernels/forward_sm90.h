// forward_sm90.h: the forward pass for Hopper, in the manner of FlashAttention-3 (arXiv 2407.08608). One warp of a
// thread block, the producer, has the copy engine bring Q and the blocks of K and V; two or three warpgroups, the
// consumers, own 64 queries each and multiply with wgmma. A consumer starts S of the next block and P V of this one
// together and computes the softmax of the next while P V still runs. Thread blocks are persistent: the producer brings
// the next tile's Q, K and V while the consumers finish this one.
#pragma once

#include "cuda/kernels/parts/dropout.h"
#include "cuda/kernels/parts/quad_store.h"
#include "cuda/kernels/parts/ring.h"
#include "cuda/kernels/parts/sequence_edges.h"
#include "cuda/kernels/parts/softmax.h"
#include "cuda/kernels/parts/ticket_schedule.h"
#include "cuda/kernels/parts/tile_copy.h"
#include "cuda/kernels/parts/tile_schedule.h"
#include "cuda/kernels/parts/tile_slot.h"
#include "cuda/kernels/parts/wgmma_product.h"
#include "cuda/kernels/ptx/mbarrier.h"

namespace flashtile {

template <KernelConfig config>
struct ForwardSm90 {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Tile = QueryTile<config>;
    static constexpr int kConsumers = forward_consumers(config);
    static constexpr int kColumns = chunk_columns(config.head_dim), kColumnsV = chunk_columns(config.head_dim_v);
    static constexpr int NT = config.Bc / 8, OT = kColumnsV / 8;
    static constexpr int kQueryStages = query_stages(config);
    static constexpr int kBytesQ = config.Br * kColumns * 2;
    static constexpr int kBytesK = config.Bc * kColumns * 2, kBytesV = config.Bc * kColumnsV * 2;
    // The warps that draw for dropout: a warpgroup, or those that the producer leaves idle.
    static constexpr bool kDrawersApart = config.warps == 4 * (kConsumers + 2);
    static constexpr int kDrawers = !config.dropout ? 0 : (kDrawersApart ? 4 : 3);
    // Registers a thread, by warpgroup: the launch gives all the same, a multiple of 8, and they are dealt out anew. A
    // producer wants more where lengths have to be looked up, and where drawers share its warpgroup.
    static constexpr int kAllRegisters = 65536 / (config.warps * 32) / 8 * 8 * (config.warps / 4);
    static constexpr int kDrawerRegisters = 56;
    static constexpr bool kBusyProducer = config.dropout ? !kDrawersApart : config.lengths_differ();
    static constexpr int kProducerRegisters = kConsumers > 2 ? 32 : (kBusyProducer ? 56 : 40);
    static constexpr int kConsumerRegisters =
        (kAllRegisters - kProducerRegisters - (kDrawersApart ? kDrawerRegisters : 0)) / kConsumers;
    static_assert(config.warps == 4 * (kConsumers + 1) || (config.dropout && kDrawersApart), "");
    // bf16's P reaches as far as fp32's exponents do, so that maxima of later blocks need not be looked for.
    static constexpr bool kSkipsMaximum = config.element == Element::bf16 && config.lazy_rescale && !config.scale_first;

    __device__ __forceinline__ unsigned slot() const { return slots + q_ring.stage * 16; }

    using Accumulators = Fragments<1, OT>;
    using Scores = Fragments<1, NT>;

    const KernelParams& params;
    unsigned q, k, v;  // shared addresses
    unsigned slots;    // likewise, one a stage of Q
    unsigned kept;     // likewise, of dropout's stages
    Ring<kQueryStages> q_ring;
    Ring<config.stages> k_ring, v_ring;
    Ring<kDropoutStages> kept_ring;
    using Kept = KeptBits<NT>;

    __device__ __forceinline__ ForwardSm90(const KernelParams& p, unsigned memory)
        : params(p), q(memory), k(q + kQueryStages * kBytesQ), v(k + config.stages * kBytesK) {
        unsigned barriers = v + config.stages * kBytesV;
        barriers = q_ring.place(barriers);
        barriers = k_ring.place(barriers);
        barriers = v_ring.place(barriers);
        slots = config.dropout ? kept_ring.place(barriers) : barriers;
        kept = slots + kQueryStages * 16;
    }

    // Each warp says that it is done with a stage of Q, one elected thread of each consumer that its warpgroup is with
    // one of K or V.
    __device__ __forceinline__ void init_barriers() const {
        for (int n = 0; n < kQueryStages; ++n) TileSlot{}.write(slots + n * 16);
        q_ring.init(kConsumers * 4 + kDrawers);
        k_ring.init(kConsumers);
        v_ring.init(kConsumers);
        if constexpr (config.dropout) kept_ring.init(kConsumers * 4, kDrawers);
        ptx::fence_mbarrier_init();
    }

    // One thread: the tiles of the schedule, and again those whose probabilities overflowed.
    __device__ __forceinline__ void produce() {
        if constexpr (config.lengths_differ())
            produce(TicketSchedule<config>(params));
        else
            produce(TileSchedule<config>(params));
    }
    template <class Schedule>
    __device__ __forceinline__ void produce(Schedule schedule) {
        // as many blanks as there are stages, so that the end of every tile is seen
        int blanks = kSkipsMaximum ? kQueryStages : 0;
        TileSlot before{};
        TileNumber number{};
        while (number.head != TileSlot::kEnd) {
            if (before.redo)
                number = before.number;
            else if (!schedule.next(number))
                number.head = blanks-- > 0 ? TileSlot::kBlank : TileSlot::kEnd;
            before = send(number, before.redo);
        }
    }

    // K of the tile's first block, Q, then K of each next block before V of the one before it, as they are used.
    // Returns the tile whose place this one's Q took.
    __device__ __forceinline__ TileSlot send(TileNumber number, bool tracked) {
        const bool empty = number.head >= TileSlot::kBlank;
        const Tile tile(params, empty ? TileNumber{0, 0} : number);
        const int blocks = empty ? 0 : tile.blocks;
        const int h = static_cast<int>(tile.seq.h), kv_head = static_cast<int>(tile.seq.kv_head(params));
        const int b = static_cast<int>(tile.seq.batch_row);
        const int first_q = static_cast<int>(tile.seq.first_q) - params.first_query;
        const int first_k = static_cast<int>(tile.seq.first_k) - params.first_key;
        // Block n of K or V to the next stage of its ring.
        const auto load = [&](auto& ring, unsigned stages, int bytes, const TensorMap& map, int columns, int n) {
            ring.wait_empty();
            ptx::mbarrier_arrive_expect(ring.full_barrier(), bytes);
            copy_tile(stages + ring.stage * bytes, map, ring.full_barrier(), columns, config.Bc,
                      first_k + tile.key_of(n), kv_head, b);
            ring.advance();
        };
        const auto load_k = [&](int n) { load(k_ring, k, kBytesK, params.k_map, kColumns, n); };
        const auto load_v = [&](int n) { load(v_ring, v, kBytesV, params.v_map, kColumnsV, n); };
        if (blocks > 0) load_k(0);
        q_ring.wait_empty();
        const TileSlot before = TileSlot::read(slot());
        TileSlot{number, tracked, false}.write(slot());
        if (empty) {
            ptx::mbarrier_arrive(q_ring.full_barrier());
        } else {
            ptx::mbarrier_arrive_expect(q_ring.full_barrier(), kBytesQ);
            copy_tile(q + q_ring.stage * kBytesQ, params.q_map, q_ring.full_barrier(), kColumns, config.Br,
                      first_q + tile.i0, h, b);
        }
        q_ring.advance();
        for (int n = 1; n < blocks; ++n) {
            load_k(n);
            load_v(n - 1);
        }
        if (blocks > 0) load_v(blocks - 1);
        return before;
    }

    // Dropout has warps of its own: Philox takes as long as the softmax, and would be added to it in the consumers,
    // each of which waits for its own. They draw for the warps of all consumers in turn, a block ahead of them.
    __device__ __forceinline__ void draw(int drawer) {
        while (true) {
            q_ring.wait_full();
            const TileSlot now = TileSlot::read(slot());
            if (now.number.head == TileSlot::kEnd) return;
            if (now.number.head != TileSlot::kBlank) {
                const Tile tile(params, now.number);
                const Dropout dropout = dropout_of(params, tile.seq);
#pragma unroll 1
                for (int n = 0; n < tile.blocks; ++n) {
                    kept_ring.wait_empty();
#pragma unroll 1
                    for (int warp = drawer; warp < kConsumers * 4; warp += kDrawers)
                        Kept::draw(dropout, params, {tile.i0 + warp * 16, tile.key_of(n)}, kept_place(warp));
                    __syncwarp();
                    if (lane_id() == 0) ptx::mbarrier_arrive(kept_ring.full_barrier());
                    kept_ring.advance();
                }
            }
            release_query();
        }
    }
    // Of a consumers' warp, counted through all of them.
    __device__ __forceinline__ unsigned kept_place(int warp) const {
        return kept + (kept_ring.stage * kConsumers * 4 + warp) * Kept::kBytes;
    }
    __device__ __forceinline__ void drop(int consumer, typename M::template Left<1, NT>& p) {
        kept_ring.wait_full();
        Kept::drop(p, kept_place(consumer * 4 + static_cast<int>(warp_id() % 4)));
        __syncwarp();
        if (lane_id() == 0) kept_ring.release();
        kept_ring.advance();
    }

    __device__ __forceinline__ void consume(int consumer) {
        if (consumer == kConsumers - 1) pass_turn(consumer);  // the first turn is the first one's
        while (true) {
            q_ring.wait_full();
            const TileSlot now = TileSlot::read(slot());
            if (now.number.head == TileSlot::kEnd) return;
            if (kSkipsMaximum && now.number.head != TileSlot::kBlank && !now.tracked)
                attend<kSkipsMaximum>(now.number, consumer);
            else if (now.number.head != TileSlot::kBlank)
                attend<false>(now.number, consumer);
            else
                release_query();
        }
    }

    // Where kSkips, blocks after the first that gave every row a maximum are not searched for a greater one.
    template <bool kSkips>
    __device__ __forceinline__ void attend(TileNumber number, int consumer) {
        const Tile tile(params, number);
        const unsigned own_q = q + q_ring.stage * kBytesQ + consumer * 64 * 128;
        const bool elected = threadIdx.x % 128 == 0;
        Accumulators o;
        Scores s;
        typename M::template Left<1, NT> p;
        Softmax<1, config.scale_first> softmax;
        float factor[2] = {0.0f, 0.0f};
        // Short tiles of few columns lose more by keeping in step than turns gain.
        const bool turns = kColumns > 64 || tile.blocks >= 12;
        bool sound = true;
        o.clear();
        softmax.start();
        // S of block n beside O += P V of block n - 1, then P of block n under the latter.
        const auto step = [&]<bool kAnchored>(int n) {
            k_ring.wait_full();
            v_ring.wait_full();
            if constexpr (config.lengths_differ())
                if (n == 1) clear_hidden_values<config>(tile_at_hand(), consumer, 0, v + v_ring.stage * kBytesV);
            if (turns) wait_turn(consumer);
            start(s, own_q);
            accumulate(o, p);
            if (turns) pass_turn(consumer);
            ptx::wgmma_wait<1>();
            pin(s);
            if (elected) k_ring.release();
            k_ring.advance();
            sound = exponentiate<kAnchored>(tile, consumer, n, s, softmax) && sound;
            ptx::wgmma_wait<0>();
            pin(o);
            if (elected) v_ring.release();
            v_ring.advance();
            softmax.rescale(o);
            p = M::left_of(s);
            if constexpr (config.dropout) drop(consumer, p);
        };
        if (tile.blocks > 0) {
            if constexpr (config.packed) clear_queries<config>(tile, consumer, own_q);
            k_ring.wait_full();
            start(s, own_q);
            ptx::wgmma_wait<0>();
            pin(s);
            if (elected) k_ring.release();
            k_ring.advance();
            exponentiate<false>(tile, consumer, 0, s, softmax);
            p = M::left_of(s);
            if constexpr (config.dropout) drop(consumer, p);
            int n = 1;
#pragma unroll 1
            for (; n < tile.blocks && !(kSkips && softmax.anchored()); ++n) step.template operator()<false>(n);
            if constexpr (kSkips) {
#pragma unroll 1
                for (; n < tile.blocks; ++n) step.template operator()<true>(n);
                if (!__all_sync(~0u, sound)) TileSlot::ask_again(slot());
            }
            const Tile done = end_of(tile);
            release_query();
            v_ring.wait_full();
            if constexpr (config.lengths_differ())
                clear_hidden_values<config>(done, consumer, done.blocks - 1, v + v_ring.stage * kBytesV);
            accumulate(o, p);
            finish_rows(done, consumer, softmax, factor);
            ptx::wgmma_wait<0>();
            pin(o);
            if (elected) v_ring.release();
            v_ring.advance();
            store(done, consumer, factor, o);
        } else {
            release_query();
            finish_rows(tile, consumer, softmax, factor);
            store(tile, consumer, factor, o);
        }
    }

    // The tile once more, where lengths that lie in memory would otherwise stay in registers. Until its Q is released.
    __device__ __forceinline__ Tile tile_at_hand() const {
        return Tile(params, TileSlot::read(slot()).number);
    }
    __device__ __forceinline__ Tile end_of(const Tile& tile) const {
        if constexpr (config.lengths_differ()) return tile_at_hand();
        return tile;
    }

    // Consumers start their products in turns (FlashAttention-3's ping-pong), so that while one's run the others work
    // on their softmax. Consumer n waits at barrier 1 + n for the 128 threads of the one before it.
    __device__ __forceinline__ void wait_turn(int consumer) const {
        ptx::named_barrier(1 + consumer, 256);
    }
    __device__ __forceinline__ void pass_turn(int consumer) const {
        ptx::named_barrier_arrive(1 + (consumer + 1) % kConsumers, 256);
    }

    // Line 8: S = Q K^T, started.
    __device__ __forceinline__ void start(Scores& s, unsigned own_q) const {
        pin(s);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim), config.Br, config.Bc>(s, own_q,
                                                                                            k + k_ring.stage * kBytesK);
        ptx::wgmma_commit();
    }

    // Line 10: O += P V, started.
    __device__ __forceinline__ void accumulate(Accumulators& o, const typename M::template Left<1, NT>& p) const {
        pin(o);
        ptx::wgmma_fence();
        start_output<config.element, config.Bc, NT>(o, p, v + v_ring.stage * kBytesV);
        ptx::wgmma_commit();
    }

    __device__ static __forceinline__ int warp_row(const Tile& tile, int consumer) {
        return tile.i0 + consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
    }

    __device__ static __forceinline__ Place place_of(const Tile& tile, int consumer, int n) {
        return {warp_row(tile, consumer), tile.key_of(n)};
    }

    // Line 9: options and masks, then P = 2^(S - m). False if it overflowed.
    template <bool kAnchored>
    __device__ __forceinline__ bool exponentiate(const Tile& tile, int consumer, int n, Scores& s,
                                                 Softmax<1, config.scale_first>& softmax) const {
        const Place place = place_of(tile, consumer, n);
        if constexpr (config.scale_first) {
            each_score<1, NT>([&](int m, int t, int e) { s.c[m][t][e] *= params.scale; });
            ScoreModifier<config>::make(params, tile.seq).template apply<false>(s, params, tile.seq, place, {}, s);
        }
        // after a block in which every row saw a key, only a band's left side hides any
        constexpr bool kMayHide = !kAnchored || config.window;
        if (kMayHide &&
            !band_covers<config>(tile.seq, place.i0, smaller(place.i0 + 16, tile.i1), place.j0, place.j0 + config.Bc))
            apply_band<config>(s, tile.seq, place);
        bool sound = true;
        if constexpr (kAnchored) {
            sound = softmax.exponentiate_anchored(s, params.scale_log2);
        } else {
            softmax.template find_maximum<config.lazy_rescale>(s, params.scale_log2);
            softmax.exponentiate(s, params.scale_log2);
        }
        return sound;
    }

    // Lines 13 to 15, under the last product: LSE = m + log l, and what O is multiplied by, 1 / l, the only division.
    __device__ __forceinline__ void finish_rows(const Tile& tile, int consumer, Softmax<1, config.scale_first>& softmax,
                                                float (&factor)[2]) const {
        softmax.finish();
        const float kept = config.dropout ? 65536.0f / static_cast<float>(65536u - params.dropout_threshold) : 1.0f;
        const int warp_i0 = warp_row(tile, consumer);
        const Sequence& seq = tile.seq;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float l = softmax.l[0][half];
            factor[half] = l == 0.0f ? 0.0f : kept / l;
            const int i = warp_i0 + Place::row(0, 2 * half);
            if constexpr (config.lse)
                if (lane_id() % 4 == 0 && i < tile.i1) {
                    const DeviceTensor& lse = params.lse;
                    rows_of<float>(lse, seq.batch_row, seq.h, seq.first_q)[i * lse.stride_row] =
                        softmax.lse(0, half, params.natural_unit);
                }
        }
    }

    // Line 12: O = O / l.
    __device__ __forceinline__ void store(const Tile& tile, int consumer, const float (&factor)[2],
                                          const Accumulators& o) const {
        const int i0 = warp_row(tile, consumer);
        const DeviceTensor& out = params.out;
        store_rows<config.element, config.head_dim_v>(
            o, factor, rows_of<Scalar>(out, tile.seq.batch_row, tile.seq.h, tile.seq.first_q) + i0 * out.stride_row,
            out.stride_row, tile.i1 - i0);
    }

    // Each warp for itself, once its last S has been computed.
    __device__ __forceinline__ void release_query() {
        __syncwarp();
        if (lane_id() == 0) q_ring.release();
        q_ring.advance();
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

template <KernelConfig config>
__device__ __forceinline__ void forward_sm90(const KernelParams& params) {
    using Forward = ForwardSm90<config>;
    const unsigned memory = (static_cast<unsigned>(__cvta_generic_to_shared(shared_memory)) + 1023) & ~1023u;
    Forward forward(params, memory);
    if (threadIdx.x == 0) forward.init_barriers();
    __syncthreads();  // barriers stand
    // uniform over a warp, and the compiler may know it
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    const int warp = __shfl_sync(~0u, static_cast<int>(warp_id()), 0) - 4 * Forward::kConsumers;  // past the consumers'
    if (Forward::kDrawersApart && warpgroup > Forward::kConsumers) {
        ptx::registers_give_back<Forward::kDrawerRegisters>();
        if constexpr (config.dropout) forward.draw(warp - 4);
    } else if (warpgroup == Forward::kConsumers) {
        ptx::registers_give_back<Forward::kProducerRegisters>();
        if (threadIdx.x == Forward::kConsumers * 128) forward.produce();
        if constexpr (config.dropout && !Forward::kDrawersApart)
            if (warp > 0) forward.draw(warp - 1);
    } else {
        ptx::registers_take<Forward::kConsumerRegisters>();
        forward.consume(warpgroup);
    }
}

}  // namespace flashtile
