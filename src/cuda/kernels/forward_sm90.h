// forward_sm90.h: the forward pass for Hopper, in the manner of FlashAttention-3 (arXiv 2407.08608). One warp of a
// thread block, the producer, has the copy engine bring Q and the blocks of K and V; two or three warpgroups, the
// consumers, own 64 queries each and multiply with wgmma. A consumer starts S of the next block and P V of this one
// together and computes the softmax of the next while P V still runs. Thread blocks are persistent: the producer brings
// the next tile's Q, K and V while the consumers finish this one.
#pragma once

#include "cuda/kernels/parts/dropout.h"
#include "cuda/kernels/parts/ring.h"
#include "cuda/kernels/parts/softmax.h"
#include "cuda/kernels/parts/swizzled_store.h"
#include "cuda/kernels/parts/tile_schedule.h"
#include "cuda/kernels/ptx/mbarrier.h"
#include "cuda/kernels/ptx/tma.h"

namespace flashtile {

template <KernelConfig config>
struct ForwardSm90 {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Tile = QueryTile<config>;
    static constexpr int kConsumers = config.warps / 4 - 1;
    static constexpr int kColumns = chunk_columns(config.head_dim), kColumnsV = chunk_columns(config.head_dim_v);
    static constexpr int NT = config.Bc / 8, OT = kColumnsV / 8;
    static constexpr int kQueryStages = query_stages(config);
    static constexpr int kBytesQ = config.Br * kColumns * 2, kStageQ = config.Br * larger(kColumns, kColumnsV) * 2;
    static constexpr int kBytesK = config.Bc * kColumns * 2, kBytesV = config.Bc * kColumnsV * 2;
    // Registers a thread: the launch gives all the same, the producer hands most of its own on.
    static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
    static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
    static_assert(config.Br == 64 * kConsumers, "");
    static constexpr unsigned kNoTile = ~0u;  // in place of a head: the list is over

    using Accumulators = Fragments<1, OT>;
    using Scores = Fragments<1, NT>;

    const KernelParams& params;
    unsigned q, k, v;  // shared addresses
    unsigned numbers;  // likewise: the tile that each stage of Q belongs to
    Ring<kQueryStages> q_ring;
    Ring<config.stages> k_ring, v_ring;

    __device__ __forceinline__ ForwardSm90(const KernelParams& p, unsigned memory)
        : params(p), q(memory), k(q + kQueryStages * kStageQ), v(k + config.stages * kBytesK) {
        unsigned barriers = v + config.stages * kBytesV;
        barriers = q_ring.place(barriers);
        barriers = k_ring.place(barriers);
        numbers = v_ring.place(barriers);
    }

    // One elected thread of each consumer says that its warpgroup is done with a stage.
    __device__ __forceinline__ void init_barriers() const {
        q_ring.init(kConsumers);
        k_ring.init(kConsumers);
        v_ring.init(kConsumers);
        ptx::fence_mbarrier_init();
    }

    // One thread: K of a tile's first block, Q, then K of each next block before V of the one before it, as they are
    // used.
    __device__ __forceinline__ void produce() {
        TileSchedule<config>(params).each([&](TileNumber number) {
            const Tile tile(params, number);
            const int h = static_cast<int>(tile.seq.h), kv_head = static_cast<int>(tile.seq.kv_head(params));
            const int b = static_cast<int>(tile.seq.b);
            const auto load = [&](unsigned to, const TensorMap& map, unsigned barrier, int columns, int rows, int row,
                                  int head) {
                for (int c = 0; c < columns; c += kChunk)
                    ptx::tma_load(to + c * rows * 2, &map, barrier, c, row, head, b);
            };
            const auto load_k = [&](int n) {
                k_ring.wait_empty();
                ptx::mbarrier_arrive_expect(k_ring.full_barrier(), kBytesK);
                load(k + k_ring.stage * kBytesK, params.k_map, k_ring.full_barrier(), kColumns, config.Bc,
                     tile.key_of(n) - params.first_key, kv_head);
                k_ring.advance();
            };
            const auto load_v = [&](int n) {
                v_ring.wait_empty();
                ptx::mbarrier_arrive_expect(v_ring.full_barrier(), kBytesV);
                load(v + v_ring.stage * kBytesV, params.v_map, v_ring.full_barrier(), kColumnsV, config.Bc,
                     tile.key_of(n) - params.first_key, kv_head);
                v_ring.advance();
            };
            if (tile.blocks > 0) load_k(0);
            q_ring.wait_empty();
            ptx::store_shared_words(numbers + q_ring.stage * 8, number.head, number.block);
            ptx::mbarrier_arrive_expect(q_ring.full_barrier(), kBytesQ);
            load(q + q_ring.stage * kStageQ, params.q_map, q_ring.full_barrier(), kColumns, config.Br,
                 tile.i0 - params.first_query, h);
            q_ring.advance();
            for (int n = 1; n < tile.blocks; ++n) {
                load_k(n);
                load_v(n - 1);
            }
            if (tile.blocks > 0) load_v(tile.blocks - 1);
        });
        q_ring.wait_empty();
        ptx::store_shared_words(numbers + q_ring.stage * 8, kNoTile, 0);
        ptx::mbarrier_arrive(q_ring.full_barrier());
    }

    __device__ __forceinline__ void consume(int consumer) {
        while (true) {
            q_ring.wait_full();
            const uint2 number = ptx::load_shared_words(numbers + q_ring.stage * 8);
            if (number.x == kNoTile) return;
            attend(Tile(params, TileNumber{number.x, number.y}), consumer);
        }
    }

    __device__ __forceinline__ void attend(const Tile& tile, int consumer) {
        const unsigned own_q = q + q_ring.stage * kStageQ + consumer * 64 * 128;
        const bool elected = threadIdx.x % 128 == 0;
        Accumulators o;
        Softmax<1, config.scale_first> softmax;
        o.clear();
        softmax.start();
        if (tile.blocks > 0) {
            Scores s;
            k_ring.wait_full();
            start(s, own_q);
            ptx::wgmma_wait<0>();
            pin(s);
            if (elected) k_ring.release();
            k_ring.advance();
            exponentiate(tile, consumer, 0, s, softmax);
            auto p = M::left_of(s);
#pragma unroll 1
            for (int n = 1; n < tile.blocks; ++n) {
                k_ring.wait_full();
                start(s, own_q);
                v_ring.wait_full();
                accumulate(o, p);
                ptx::wgmma_wait<1>();
                pin(s);
                if (elected) k_ring.release();
                k_ring.advance();
                exponentiate(tile, consumer, n, s, softmax);
                ptx::wgmma_wait<0>();
                pin(o);
                if (elected) v_ring.release();
                v_ring.advance();
                softmax.rescale(o);
                p = M::left_of(s);
            }
            v_ring.wait_full();
            accumulate(o, p);
            ptx::wgmma_wait<0>();
            pin(o);
            if (elected) v_ring.release();
            v_ring.advance();
        }
        finish(tile, consumer, softmax, o);
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

    // Line 9: options and masks, then P = 2^(S - m).
    __device__ __forceinline__ void exponentiate(const Tile& tile, int consumer, int n, Scores& s,
                                                 Softmax<1, config.scale_first>& softmax) const {
        const Place place{warp_row(tile, consumer), tile.key_of(n)};
        if constexpr (config.scale_first) {
            each_score<1, NT>([&](int m, int t, int e) { s.c[m][t][e] *= params.scale; });
            ScoreModifier<config>::make(params, tile.seq).template apply<false>(s, params, tile.seq, place, s);
        }
        if (!band_covers<config>(tile.seq, place.i0, smaller(place.i0 + 16, tile.i1), place.j0, place.j0 + config.Bc))
            apply_band<config>(s, tile.seq, place);
        softmax.template find_maximum<config.lazy_rescale>(s, params.scale_log2);
        softmax.exponentiate(s, params.scale_log2);
        if constexpr (config.dropout)
            each_dropped<1, NT>(dropout_of(params, tile.seq), params, place,
                                [&](int m, int t, int e) { s.c[m][t][e] = 0.0f; });
    }

    // Lines 12 to 15: O = O / l, the only division; LSE = m + log l. O takes the place of this warpgroup's own Q, which
    // no other reads, and leaves from there in whole vectors.
    __device__ __forceinline__ void finish(const Tile& tile, int consumer, Softmax<1, config.scale_first>& softmax,
                                           Accumulators& o) {
        softmax.finish();
        const float kept = config.dropout ? 65536.0f / static_cast<float>(65536u - params.dropout_threshold) : 1.0f;
        const int warp_i0 = warp_row(tile, consumer), warp_i1 = smaller(warp_i0 + 16, tile.i1);
        const Sequence& seq = tile.seq;
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float l = softmax.l[0][half];
            factor[half] = l == 0.0f ? 0.0f : kept / l;
            const int i = warp_i0 + Place::row(0, 2 * half);
            if constexpr (config.lse)
                if (lane_id() % 4 == 0 && i < warp_i1) {
                    const DeviceTensor& lse = params.lse;
                    rows_of<float>(lse, seq.batch_row, seq.h, seq.first_q)[i * lse.stride_row] =
                        softmax.lse(0, half, params.natural_unit);
                }
        }
        Scalar* out = rows_of<Scalar>(params.out, seq.batch_row, seq.h, seq.first_q) + warp_i0 * params.out.stride_row;
        ptx::named_barrier(1 + consumer, 128);  // no warp of this warpgroup still reads Q
        store_warp_rows<config.element, config.head_dim_v, config.Br>(
            o, factor, q + q_ring.stage * kStageQ, consumer * 64 + static_cast<int>(warp_id() % 4) * 16, out,
            params.out.stride_row, warp_i1 - warp_i0);
        ptx::fence_async_proxy();               // the copy engine writes where O was
        ptx::named_barrier(1 + consumer, 128);  // all of this warpgroup have read O from there
        if (threadIdx.x % 128 == 0) q_ring.release();
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
    if (warpgroup == Forward::kConsumers) {
        ptx::registers_give_back<Forward::kProducerRegisters>();
        if (threadIdx.x == Forward::kConsumers * 128) forward.produce();
    } else {
        ptx::registers_take<Forward::kConsumerRegisters>();
        forward.consume(warpgroup);
    }
}

}  // namespace flashtile
