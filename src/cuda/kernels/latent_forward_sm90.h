// latent_forward_sm90.h: Hopper's forward pass for latent heads (MLA), whose V is the first columns of K: a block of
// keys is loaded once for both products. O of 64 rows would fill the registers of two warpgroups, so that the two
// consumers share the same 64 rows, each with columns of its own. The first computes S and the softmax as well, and
// hands P to the second through shared memory. The order of products is O += P V of the first's columns, S of the next
// block, and O += P V of the second's columns, under which the first computes its softmax.
#pragma once

#include "cuda/kernels/parts/common/row_end.h"
#include "cuda/kernels/parts/common/softmax.h"
#include "cuda/kernels/parts/hopper/named_barriers.h"
#include "cuda/kernels/parts/hopper/quad_store.h"
#include "cuda/kernels/parts/hopper/query_pipeline_sm90.h"
#include "cuda/kernels/parts/hopper/sequence_edges.h"
#include "cuda/kernels/parts/hopper/wgmma_product.h"

namespace flashtile {

template <KernelConfig config>
struct LatentForwardSm90 : QueryPipeline<config> {
    using Base = QueryPipeline<config>;
    using Base::Base, Base::NT, Base::kBytesQ, Base::kBytesK, Base::kConsumers;
    using Base::params, Base::q, Base::k, Base::handed, Base::q_ring, Base::latent_ring;
    using Base::slot, Base::tile_at_hand, Base::release_query;
    using typename Base::M, typename Base::Scalar, typename Base::Slot, typename Base::Tile;
    using Ring = LatentRing<config>;
    using Scores = Fragments<1, NT>;
    using LeftP = typename M::template Left<1, NT>;
    using Soft = Softmax<1, own_units<config>()>;
    static constexpr int kFirstOT = Ring::kFirstChunks * kChunk / 8, kSecondOT = Ring::kSecondChunks * kChunk / 8;
    static constexpr int kWidestProduct = 32;  // eights of columns
    static constexpr unsigned kBoth = barriers::kTwoWarpgroups;
    // Chunks of S that are still being multiplied when the second consumer may start, so that the tensor cores have
    // work while it does.
    static constexpr int kLead = 1;
    // Chunks of S that are started before the first consumer waits for its own P V, to release V early.
    static constexpr int kQueued = 2;
    static_assert(config.Br == 64 && config.Bc == 64, "one wgmma of 64 rows, and a tile of P that two consumers share");

    __device__ __forceinline__ void consume(int consumer) {
        if (consumer == 0)
            consume_keys();
        else
            consume_values();
    }

    // Calls body(tile) for each tile. It releases Q.
    template <class Body>
    __device__ __forceinline__ void each_tile(Body body) {
        while (true) {
            q_ring.wait_full();
            const Slot now = Slot::read(slot());
            if (now.number.head == Slot::kEnd) return;
            if (now.is_tile())
                body(tile_at_hand());
            else
                release_query();
        }
    }

    // The first consumer: S, P and its columns of O.
    __device__ __forceinline__ void consume_keys() {
        each_tile([this](const Tile& tile) {
            Fragments<1, kFirstOT> o;
            Soft softmax;
            softmax.start(log2_factor<config>(params));
            o.clear();
            float factor[2];
            if (tile.keys.count > 0) {
                attend(tile, softmax, o, factor);
            } else {  // no row sees a key
                release_query();
                finish_rows(tile, softmax, factor);
            }
            store<0>(tile, factor, o);
        });
    }

    // All blocks of keys.
    __device__ __forceinline__ void attend(const Tile& tile, Soft& softmax, Fragments<1, kFirstOT>& o,
                                           float (&factor)[2]) {
        Scores s;
        LeftP p;
        if constexpr (config.packed || config.seqused_q)  // sequences differ in how many queries they have
            clear_queries<config>(tile, 0, q + q_ring.stage * kBytesQ);
        pin(s);
        prepare_keys(tile, 0);
        ptx::wgmma_fence();
        start_chunks<0, Ring::kChunks>(s);
        latent_ring.advance();
        ptx::wgmma_wait<0>();
        pin(s);
        make_p(tile, 0, s, softmax, p);
#pragma unroll 1
        for (int n = 1; n < tile.keys.count; ++n) {
            pin(s);  // while no product runs
            start_values(o, p, value_stage(before()), 0);
            prepare_keys(tile, n);
            ptx::wgmma_fence();
            start_chunks<0, kQueued>(s);
            ptx::wgmma_wait<kQueued>();  // the values' product is done
            if (elected()) latent_ring.release(before(), LatentShare::first_values);
            start_chunks<kQueued, Ring::kChunks>(s);
            latent_ring.advance();
            ptx::wgmma_wait<kLead>();
            let_second_start(n - 1);
            ptx::wgmma_wait<0>();
            pin(s);
            pin(o);
            make_p(tile, n, s, softmax, p);
            softmax.rescale(o);
        }
        release_query();
        start_values(o, p, value_stage(before()), 0);
        let_second_start(tile.keys.count - 1);
        finish_rows(tile, softmax, factor);
        ptx::wgmma_wait<0>();
        pin(o);
        if (elected()) latent_ring.release(before(), LatentShare::first_values);
    }

    // Clears what no query of the sequence sees of the block of keys that the ring is at.
    __device__ __forceinline__ void prepare_keys(const Tile& tile, int n) const {
        if constexpr (config.maps_hold_hidden_keys()) {
            if (n == 0 || n == tile.keys.count - 1) {
                latent_ring.wait_all_full();
                clear_hidden_values<config>(tile, 0, tile.key_of(n), k + latent_ring.stage * kBytesK);
            }
        }
    }

    // S = Q K^T of that block, some chunks of it, each as soon as it is there, and each a group of its own: a wait
    // between products ends a group in any case, as ptxas translates it.
    template <int kFirst, int kEnd>
    __device__ __forceinline__ void start_chunks(Scores& s) const {
        constexpr int kLast =
            padded(config, config.head_dim) - (Ring::kChunks - 1) * kChunk;  // columns of the last one
#pragma unroll
        for (int n = kFirst; n < kEnd; ++n) {
            const int chunk = Ring::chunk_at(n);
            latent_ring.wait_full(chunk);
            const unsigned a = q + q_ring.stage * kBytesQ + chunk * config.Br * kChunkRowBytes;
            const unsigned b = k + latent_ring.stage * kBytesK + chunk * Ring::kBytesChunk;
            if (chunk < Ring::kChunks - 1)
                start_scores<config.element, kChunk, config.Br, config.Bc>(s, a, b, n != 0);
            else
                start_scores<config.element, kLast, config.Br, config.Bc>(s, a, b, n != 0);
            ptx::wgmma_commit();
        }
    }

    // Line 9: options, masks, the maximum and P = 2^(S - m), which the other consumer gets with the factors of its O.
    __device__ __forceinline__ void make_p(const Tile& tile, int n, Scores& s, Soft& softmax, LeftP& p) {
        if (Ring::kChunks > Ring::kValueChunks && elected()) latent_ring.release(before(), LatentShare::keys_only);
        const Place place{tile.i0 + own_row(), tile.key_of(n)};
        BiasAndMask<config, 1, NT> none;
        ScoreModifier<config>::make(params, tile.seq)
            .template apply<DerivativeBy::none>(s, params, tile.seq, place, none, s);
        if constexpr (config.paged)
            if (const unsigned unnamed = ptx::load_shared_word(Base::told + before() * 4); unnamed != 0)
                each_score<1, NT>([&](int, int t, int e) {
                    if ((unnamed >> t & 1) != 0) s.c[0][t][e] = -infinity();
                });
        if (!tile.seq.template sees_all<config>(place.i0, smaller(place.i0 + 16, tile.i1), place.j0,
                                                place.j0 + config.Bc))
            apply_band<config>(s, tile.seq, place);
        softmax.template find_maximum<config.lazy_rescale>(s, log2_factor<config>(params));
        softmax.exponentiate(s, log2_factor<config>(params));
        p = M::left_of(s);
        ptx::named_barrier(barriers::kReadP, kBoth);
#pragma unroll
        for (int c = 0; c < NT / 2; ++c)
            ptx::store_shared(place_of_p(c), make_uint4(p.a[0][c][0], p.a[0][c][1], p.a[0][c][2], p.a[0][c][3]));
        const float kept[2] = {softmax.grows ? softmax.alpha[0][0] : 1.0f, softmax.grows ? softmax.alpha[0][1] : 1.0f};
        write_factors(kept);
        ptx::named_barrier_arrive(barriers::kFullP, kBoth);
    }

    // The second consumer: the other columns of O. P of a block is here before the second's turn has come.
    __device__ __forceinline__ void consume_values() {
        ptx::named_barrier_arrive(barriers::kReadP, kBoth);
        each_tile([this](const Tile& tile) {
            release_query();
            Fragments<1, kSecondOT> o;
            o.clear();
#pragma unroll 1
            for (int n = 0; n < tile.keys.count; ++n) {
                ptx::named_barrier(barriers::kFullP, kBoth);
                LeftP p;
#pragma unroll
                for (int c = 0; c < NT / 2; ++c) {
                    const uint4 x = ptx::load_shared(place_of_p(c));
                    p.a[0][c][0] = x.x, p.a[0][c][1] = x.y, p.a[0][c][2] = x.z, p.a[0][c][3] = x.w;
                }
                rescale(o);
                ptx::named_barrier_arrive(barriers::kReadP, kBoth);
#pragma unroll
                for (int c = Ring::kFirstChunks; c < Ring::kValueChunks; ++c) latent_ring.wait_full(c);
                ptx::named_barrier(barriers::kSecond + n % 2, kBoth);
                start_values(o, p, value_stage(latent_ring.stage), Ring::kFirstChunks);
                ptx::wgmma_wait<0>();
                pin(o);
                if (elected()) latent_ring.release(latent_ring.stage, LatentShare::second_values);
                latent_ring.advance();
            }
            ptx::named_barrier(barriers::kFullP, kBoth);
            float factor[2];
            read_factors(factor);
            ptx::named_barrier_arrive(barriers::kReadP, kBoth);
            store<Ring::kFirstChunks * kChunk>(tile, factor, o);
        });
    }

    __device__ __forceinline__ void let_second_start(int n) const {
        ptx::named_barrier_arrive(barriers::kSecond + n % 2, kBoth);
    }

    // Line 10: O += P V of the columns from a chunk on, started. A product has at most 256 columns.
    template <int OT>
    __device__ __forceinline__ void start_values(Fragments<1, OT>& o, const LeftP& p, unsigned stage, int chunk) const {
        constexpr int kFirst = OT < kWidestProduct ? OT : kWidestProduct;
        const unsigned v = stage + chunk * Ring::kBytesChunk;
        pin(o);
        ptx::wgmma_fence();
        start_output<config.element, config.Bc, NT>(reinterpret_cast<Fragments<1, kFirst>&>(o.c[0][0]), p, v);
        if constexpr (OT > kFirst)
            start_output<config.element, config.Bc, NT>(reinterpret_cast<Fragments<1, OT - kFirst>&>(o.c[0][kFirst]), p,
                                                        v + kFirst * 8 / kChunk * Ring::kBytesChunk);
        ptx::wgmma_commit();
    }

    // Lines 13 to 15: LSE, and the factor of O, which the other consumer gets, too.
    __device__ __forceinline__ void finish_rows(const Tile& tile, Soft& softmax, float (&factor)[2]) const {
        softmax.finish();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = tile.i0 + own_row() + Place::row(0, 2 * half);
            const bool real = is_row(tile, row);
            const Index h = tile.seq.h + (real ? row % config.group_rows : 0);
            const float m = softmax.m[0][half], l = softmax.l[0][half];
            factor[half] = row_factor<config>(params, h, m, l);
            if (lane_id() % 4 != 0 || !real) continue;
            if (is_part(tile))
                *reinterpret_cast<float2*>(params.ws_part_ml + 2 * part_of(tile, row)) = make_float2(m, l);
            else if constexpr (config.lse)
                rows_of<float>(params.lse, tile.seq.batch_row, h,
                               tile.seq.first_q)[query_of<config>(row) * params.lse.stride_row] =
                    static_cast<float>(row_lse<config>(params, h, m, l));
        }
        __syncwarp();  // a barrier takes whole warps
        ptx::named_barrier(barriers::kReadP, kBoth);
        write_factors(factor);
        ptx::named_barrier_arrive(barriers::kFullP, kBoth);
    }

    // Line 12: O = O / l, of the columns from kColumn on; or, for combine_shares.h, O as it stands.
    template <int kColumn, int OT>
    __device__ __forceinline__ void store(const Tile& tile, const float (&factor)[2], const Fragments<1, OT>& o) const {
        if (is_part(tile)) return store_part<kColumn>(tile, o);
        const int first = tile.i0 + own_row();
        store_rows_at<config.element>(
            o, factor, config.head_dim_v - kColumn, [&](int n) { return is_row(tile, first + n); },
            [&](int n) {
                const int row = first + n;
                return rows_of<Scalar>(params.out, tile.seq.batch_row, tile.seq.h + row % config.group_rows,
                                       tile.seq.first_q + query_of<config>(row)) +
                       kColumn;
            });
    }
    template <int kColumn, int OT>
    __device__ __forceinline__ void store_part(const Tile& tile, const Fragments<1, OT>& o) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = tile.i0 + own_row() + Place::row(0, 2 * half);
            if (!is_row(tile, row)) continue;
            float* const to = params.ws_part_o + part_of(tile, row) * config.head_dim_v;
#pragma unroll
            for (int n = 0; n < OT; ++n)
                if (const int column = kColumn + Place::column(n, 0); column < config.head_dim_v)
                    *reinterpret_cast<float2*>(to + column) = make_float2(o.c[0][n][2 * half], o.c[0][n][2 * half + 1]);
        }
    }

    __device__ static __forceinline__ bool is_part(const Tile& tile) {
        return config.shares && tile.part != TileNumber::kWhole;
    }
    __device__ __forceinline__ Index part_of(const Tile& tile, int row) const {
        return Index{tile.part} + (row - tile.i0);
    }
    // Whether a row of the tile is one of out.
    __device__ __forceinline__ bool is_row(const Tile& tile, int row) const {
        return row < tile.i1 && (config.group_rows == 1 || row % config.group_rows < params.group);
    }

    // The first of this warp's rows in a tile; both consumers' warps share them alike.
    __device__ static __forceinline__ int own_row() {
        return static_cast<int>(warp_id() % 4) * 16;
    }
    __device__ static __forceinline__ bool elected() {
        return threadIdx.x % 128 == 0;
    }

    // The stage of the block before the one that the ring is at.
    __device__ __forceinline__ int before() const {
        return (latent_ring.stage + config.stages - 1) % config.stages;
    }
    __device__ __forceinline__ unsigned value_stage(int stage) const {
        return k + stage * kBytesK;
    }

    // What the first consumer hands to the second: P, as the same lane of either needs it, and a factor of each row.
    __device__ __forceinline__ unsigned place_of_p(int c) const {
        return handed + (c * 128 + threadIdx.x % 128) * 16;
    }
    __device__ __forceinline__ unsigned place_of_factor(int half) const {
        return handed + config.Br * config.Bc * 2 + (own_row() + Place::row(0, 2 * half)) * 4;
    }
    __device__ __forceinline__ void write_factors(const float (&factor)[2]) const {
        if (lane_id() % 4 != 0) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) ptx::store_shared(place_of_factor(half), __float_as_uint(factor[half]));
    }
    __device__ __forceinline__ void read_factors(float (&factor)[2]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            factor[half] = __uint_as_float(ptx::load_shared_word(place_of_factor(half)));
    }
    template <int OT>
    __device__ __forceinline__ void rescale(Fragments<1, OT>& o) const {
        float factor[2];
        read_factors(factor);
        if (!__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) return;
        each_score<1, OT>([&](int m, int n, int e) { o.c[m][n][e] *= factor[e / 2]; });
    }
};

template <KernelConfig config>
__device__ __forceinline__ void latent_forward_sm90(const KernelParams& params) {
    run_forward_sm90<LatentForwardSm90<config>, config>(params);
}

}  // namespace flashtile
