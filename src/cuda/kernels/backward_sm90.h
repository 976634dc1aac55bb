// backward_sm90.h: the backward pass for Hopper (FlashAttention-2's Algorithm 2 with FlashAttention-3's means). A
// thread block owns 128 keys of one key head, 64 for each of its two consumer warpgroups. A producer warp loads with
// TMA the blocks of Q and dO that see these keys, of every query head of the group. S and dP are computed transposed,
// so that P^T and dS^T are in the registers from which wgmma takes its left factor for dV and dK. Only dS goes through
// shared memory, for dQ, which is added to in fp32 in global memory. (Heads whose dK and dV of 64 keys take more than
// 160 registers a lane have backward_wide_sm90.h.)
#pragma once

#include "cuda/kernels/parts/hopper/key_block_sm90.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardSm90 : KeyBlock<config> {
    using Base = KeyBlock<config>;
    using Base::Base, Base::KT, Base::VT, Base::NT, Base::kBytesQ, Base::kBytesDO, Base::kBytesDS;
    using Base::k, Base::v, Base::q, Base::dout, Base::ds, Base::kv_full;
    using Base::params, Base::seq, Base::steps, Base::q_ring, Base::dout_ring, Base::kConsumerThreads;
    using typename Base::M, typename Base::Step, typename Base::Seen;
    // With 128 queries P and dP take 64 registers each, so that P is rounded for dV only once dS is made of it.
    static constexpr bool kRoundsLate = config.Br == 128;
    // The first chunk of V lies in registers, because products of two factors in shared memory take all of its
    // bandwidth. The producer gives up some of its registers for that, where it has no lengths to look up and keeps no
    // turns.
    static constexpr bool kKeepsValues = config.Br == 64 && !Base::kPacksP && !config.lengths_differ() &&
                                         !config.deterministic && !config.softcap && !config.dropout &&
                                         !config.has_bias_or_mask() && !config.score_function;
    // A bias that is loaded element by element, or a score function, takes the registers that dP has.
    static constexpr bool kScoresFirst =
        (config.bias != BiasElement::none && !config.bias_mapped) || config.score_function;
    static constexpr int kKeptColumns =
        !kKeepsValues ? 0 : (padded(config, config.head_dim_v) < kChunk ? padded(config, config.head_dim_v) : kChunk);
    static constexpr int kOtherColumns = padded(config, config.head_dim_v) - kKeptColumns;
    using Kept = typename M::template Left<1, kChunk / 8>;
    using Left = typename M::template Left<1, NT>;
    static constexpr bool kManyRegisters = kKeepsValues || kRoundsLate || Base::kPacksP;
    // P goes to dV's factor before S becomes P times a derivative.
    static constexpr bool kMultipliesP = config.softcap || Base::kHasDerivative;
    static constexpr int kProducerRegisters = kManyRegisters ? 24 : 40, kConsumerRegisters = kManyRegisters ? 240 : 232;
    // Each of the two consumers makes 64 x 64 of dQ: half of the columns of 64 rows, or half of the rows of 64 columns.
    // Where d is over 128, it makes half of the third chunk of columns, too.
    static_assert(config.Br * Base::kColumns == (Base::kPacksP ? 192 : 128) * 64 && config.Bc == 128, "");

    int parity = 0;

    __device__ __forceinline__ void consume(int consumer) {
        Fragments<1, KT> dk;
        Fragments<1, VT> dv;
        dk.clear();
        dv.clear();
        Kept kept;
        if (steps > 0) {
            ptx::mbarrier_wait(kv_full, 0);
            this->clear_hidden_keys();
            this->clear_unseen_keys();
            if constexpr (kKeepsValues) kept = read_left<config.element, 0, kChunk>(v, own_row(consumer));
        }
        const DropoutSeed seed(params);
        if (steps > 0) this->bring_mask(this->first_step(), own_row(consumer));
        const int first = first_seen(consumer);
        const Seen seen = this->seen_by(consumer * 64, own_row(consumer));
        this->each_step([&](const Step& step) {
            const bool sees =
                (!kLeavesOut || step.block >= first) && (!config.narrow_lists || (step.seen >> consumer & 1) != 0);
            process_block(consumer, step, sees, seen, kept, seed, dk, dv);
        });
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // K and V have been read for the last time
        if constexpr (config.head_parts == 2) {
            static_assert(
                config.head_dim == config.head_dim_v && config.stages * (kBytesQ + kBytesDO) >= 2 * Base::kBytesK,
                "dK and dV are alike, and one of them in fp32 has room");
            const GroupGradients both = this->group_gradients();
            both.exchange(dk, dv);
            const bool stores_dk = both.rank() == 0;
            this->template store<config.head_dim>(dk, stores_dk ? params.scale : kept_factor<config>(params), k,
                                                  stores_dk ? params.dk : params.dv, consumer * 64);
            both.finish();
        } else {
            this->template store<config.head_dim>(dk, params.scale, k, params.dk, consumer * 64);
            this->template store<config.head_dim_v>(dv, Base::kFactorP * kept_factor<config>(params), v, params.dv,
                                                    consumer * 64);
        }
    }

    // The first block with a query that sees one of this consumer's keys: under a causal mask those of a thread block's
    // first one need not. (Where P is packed, such blocks take registers that products need.)
    static constexpr bool kLeavesOut = config.band && config.Br == 64 && !Base::kPacksP;
    __device__ __forceinline__ int first_seen(int consumer) const {
        if constexpr (!kLeavesOut) return 0;
        return seq.template first_query<config>(this->j0 + consumer * 64) / config.Br - this->queries.first_block;
    }

    // 0 and 1 in turns from step to step.
    __device__ __forceinline__ int next_parity() {
        if constexpr (config.stages % 2 == 0) return q_ring.stage % 2;
        return (parity ^= 1) ^ 1;
    }

    // Lines 10 to 16 of Algorithm 2.
    __device__ __forceinline__ void process_block(int consumer, const Step& step, bool sees, const Seen& seen,
                                                  const Kept& kept, const DropoutSeed& seed, Fragments<1, KT>& dk,
                                                  Fragments<1, VT>& dv) {
        const int n = next_parity();
        dout_ring.stage = q_ring.stage, dout_ring.phase = q_ring.phase;  // they are alike, but the compiler keeps both
        const int i0 = this->query_of(step);
        if constexpr (config.alibi || config.dropout || Base::kMayHide) seq.h = step.head;
        const Dropout dropout = Dropout::make(seed.seed, seed.offset, static_cast<unsigned>(params.origin_b + seq.b),
                                              static_cast<unsigned>(params.origin_h + seq.h), params.dropout_threshold);
        const unsigned ds_now = ds + n * kBytesDS;
        Left p, left_ds{};  // both stay until the products that read them are done
        if (sees) {
            left_ds = make_ds(consumer, step, seen, ds_now, kept, dropout, dv, p);
        } else {
            this->write_ds(left_ds, ds_now, own_row(consumer));
            q_ring.wait_full();
            clear_queries<Base::kColumns>(consumer, i0, q + q_ring.stage * kBytesQ, this->some_see_no_key());
            this->release_bias();
        }
        ptx::fence_async_proxy();
        // dS of both consumers is written, and dS of two blocks ago was read
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);
        if constexpr (Base::kPacksP) {  // dQ takes the registers of P
            ptx::wgmma_wait<0>();
            finish_dv(dv);
        }

        // dQ = dS K, dK += dS^T Q
        Fragments<1, 8> dq;
        const int column = config.Br == 64 ? consumer * 8 : 0;
        float* to = this->place_of_dq(step, config.Br == 128 ? consumer * 4 : 0, column);
        pin(dq);
        pin(dk);
        ptx::wgmma_fence();
        start_transposed<config.element, config.Bc>(
            dq, ds_now + (config.Br == 128 ? consumer * config.Bc * kChunkRowBytes : 0),
            k + (config.Br == 64 ? consumer * config.Bc * kChunkRowBytes : 0));
        ptx::wgmma_commit();
        start_output<config.element, config.Br, NT>(dk, left_ds, q + q_ring.stage * kBytesQ);
        ptx::wgmma_commit();
        if constexpr (Base::kMaskAhead) {  // behind the fence, which waits for loads
            Step next = step;
            this->advance(next);
            if (this->in_group(next)) this->bring_mask(next, own_row(consumer));
        }
        ptx::wgmma_wait<1>();
        if constexpr (!Base::kPacksP) finish_dv(dv);
        pin(dq);
        this->template add<!Base::kPacksP>(n, to, column, dq);
        ptx::wgmma_wait<0>();
        pin(dk);
        q_ring.release_by_warp();
        q_ring.advance();
        if constexpr (Base::kPacksP) add_third_chunk(consumer, n, ds_now, step);
    }

    __device__ __forceinline__ void finish_dv(Fragments<1, VT>& dv) {
        pin(dv);
        dout_ring.release_by_warp();
        dout_ring.advance();
    }

    // This consumer's half of dQ's third chunk of columns. It comes last: what the next step loads waits behind the
    // last additions, and these are the fewest.
    __device__ __forceinline__ void add_third_chunk(int consumer, int n, unsigned ds_now, const Step& step) const {
        constexpr int kHalf = kChunk / 2;
        const int column = 2 * kChunk / 8 + consumer * (kHalf / 8);
        Fragments<1, kHalf / 8> dq;
        pin(dq);
        ptx::wgmma_fence();
        start_transposed<config.element, config.Bc>(
            dq, ds_now, k + 2 * config.Bc * kChunkRowBytes + consumer * (kHalf * Base::kSize));
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(dq);
        this->add(n, this->place_of_dq(step, 0, column), column, dq);
    }

    // Clears the rows of Q or dO of queries that see no key.
    template <int kTileColumns>
    __device__ __forceinline__ void clear_queries(int consumer, int i0, unsigned tile, bool some_see_no_key) const {
        this->template clear_hidden_queries<kTileColumns>(consumer, i0, tile);
        if (some_see_no_key) this->template clear_empty_queries<kTileColumns>(consumer, tile);
    }

    // S^T = K Q^T
    __device__ __forceinline__ void start_s(int consumer, int i0, bool some_see_no_key, Fragments<1, NT>& s) const {
        const unsigned q_now = q + q_ring.stage * kBytesQ;
        clear_queries<Base::kColumns>(consumer, i0, q_now, some_see_no_key);
        pin(s);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim), config.Bc, config.Br>(
            s, k + consumer * 64 * kChunkRowBytes, q_now);
        ptx::wgmma_commit();
    }
    // dP^T = V dO^T
    __device__ __forceinline__ void start_dp(int consumer, int i0, bool some_see_no_key, const Kept& kept,
                                             Fragments<1, NT>& dp) const {
        const unsigned dout_now = dout + dout_ring.stage * kBytesDO;
        dout_ring.wait_full();
        clear_queries<Base::kColumnsV>(consumer, i0, dout_now, some_see_no_key);
        pin(dp);
        ptx::wgmma_fence();
        if constexpr (kKeepsValues) start_scores<config.element, kKeptColumns, config.Br>(dp, kept, dout_now);
        constexpr int kKeptChunks = kKeepsValues ? 1 : 0;
        if constexpr (kOtherColumns > 0)
            start_scores<config.element, kOtherColumns, config.Bc, config.Br>(
                dp, (Base::kPacksP ? this->anew(v) : v) + (kKeptChunks * config.Bc + consumer * 64) * kChunkRowBytes,
                dout_now + kKeptChunks * config.Br * kChunkRowBytes, kKeepsValues);
        ptx::wgmma_commit();
    }
    // dV += P^T dO
    __device__ __forceinline__ void start_dv(const Left& p, Fragments<1, VT>& dv) const {
        pin(dv);
        ptx::wgmma_fence();
        start_output<config.element, config.Br, NT>(dv, p, dout + dout_ring.stage * kBytesDO);
        ptx::wgmma_commit();
    }

    // make_ds with P packed before dP is computed; there are no options then.
    __device__ __forceinline__ Left make_ds_of_packed(int consumer, const Step& step, const Seen& seen, unsigned ds_now,
                                                      Fragments<1, VT>& dv, Left& p) {
        const int i0 = this->query_of(step);
        Fragments<1, NT> s, dp;
        q_ring.wait_full();
        start_s(consumer, i0, false, s);
        ptx::wgmma_wait<0>();
        pin(s);
        this->make_scores(s, step, seen, own_row(consumer));
        this->exponentiate(s);
        const typename Base::PackedP packed = Base::Packed::left_of(s);
        start_dp(consumer, i0, false, {}, dp);
        ptx::wgmma_wait<0>();
        pin(dp);
        this->differentiate(dp, [&](int t, int half) { return Base::of_packed(packed, t, half); });
        const Left left_ds = M::left_of(dp);
        this->write_ds(left_ds, ds_now, own_row(consumer));
        p = Base::left_of_packed(packed);
        start_dv(p, dv);
        return left_ds;
    }

    // This consumer's part of dS, in registers and in its tile, and dV, whose product of P is left
    // running.
    __device__ __forceinline__ Left make_ds(int consumer, const Step& step, const Seen& seen, unsigned ds_now,
                                            const Kept& kept, const Dropout& dropout, Fragments<1, VT>& dv, Left& p) {
        if constexpr (Base::kPacksP) return make_ds_of_packed(consumer, step, seen, ds_now, dv, p);
        const int i0 = this->query_of(step);
        Fragments<1, NT> s, dp;
        q_ring.wait_full();
        const bool some_see_no_key = this->some_see_no_key();
        start_s(consumer, i0, some_see_no_key, s);
        this->find_values(i0, own_row(consumer), step.whole);
        KeptTransposed<NT> kept_of;
        if constexpr (config.dropout && Base::kMayHide)  // where the registers of dP are free
            kept_of.draw(dropout, params, {this->j0 + own_row(consumer), i0});
        if constexpr (kScoresFirst) {
            ptx::wgmma_wait<0>();
            pin(s);
            this->make_scores(s, step, seen, own_row(consumer));
            if constexpr (Base::kHasDerivative) exponentiate_function(s, p, {this->j0 + own_row(consumer), i0});
        }
        start_dp(consumer, i0, some_see_no_key, kept, dp);

        // P = 2^(S - LSE)
        if constexpr (!kScoresFirst) {
            ptx::wgmma_wait<1>();
            pin(s);
            this->make_scores(s, step, seen, own_row(consumer));
        }
        if constexpr (config.softcap)
            exponentiate_capped(s, p);
        else if constexpr (!Base::kHasDerivative)
            this->exponentiate(s);
        if constexpr (!kRoundsLate && !kMultipliesP) p = M::left_of(s);
        if constexpr (config.dropout && !Base::kMayHide)
            kept_of.draw(dropout, params, {this->j0 + own_row(consumer), i0});

        // dS = P (dP - D), times softcap's derivative
        ptx::wgmma_wait<0>();
        pin(dp);
        if constexpr (config.dropout) {
            const float kept = kept_factor<config>(params);
            each_score<1, NT>(
                [&](int m, int n, int e) { dp.c[m][n][e] = kept_of(n, e) ? dp.c[m][n][e] * kept : 0.0f; });
        }
        this->differentiate(dp,
                            [&](int t, int half) { return make_float2(s.c[0][t][2 * half], s.c[0][t][2 * half + 1]); });
        if constexpr (config.score_function)
            if (this->unsure)
                each_score<1, NT>([&](int m, int n, int e) {
                    if (s.c[m][n][e] == 0.0f) dp.c[m][n][e] = 0.0f;  // dP may be anything there
                });
        const Left left_ds = M::left_of(dp);
        this->write_ds(left_ds, ds_now, own_row(consumer));

        // dV starts before dS is published: the other consumer waits for that no longer than for dV
        if constexpr (kRoundsLate && !kMultipliesP) p = M::left_of(s);
        if constexpr (config.dropout) drop(p, kept_of);
        start_dv(p, dv);
        return left_ds;
    }

    // S becomes P times the derivative of softcap, 1 - (S / cap)^2, and P itself goes to dV's factor.
    __device__ __forceinline__ void exponentiate_capped(Fragments<1, NT>& s, Left& p) const {
        const float inverse = 1.0f / ScoreModifier<config>::cap(params);
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_lse = this->lse_of(t);
            float(&x)[4] = s.c[0][t];
            float P[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float of_cap = fmaxf(x[e] * inverse, -1.0f);  // a score that is hidden has no derivative
                P[e] = this->probability(x[e], this->of_query(row_lse, e));
                x[e] = P[e] * fmaf(-of_cap, of_cap, 1.0f);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half)
                p.a[0][t / 2][t % 2 * 2 + half] = M::pack(P[2 * half], P[2 * half + 1]);
        }
    }

    // The same of a score function, which is applied only now, when masks have hidden what they do.
    __device__ __forceinline__ void exponentiate_function(Fragments<1, NT>& s, Left& p, const Place& place) const {
        float2 row_lse;
        float P[4];
        each_function_value_transposed<ScoreFunction, config, NT>(
            params, seq, place,
            [&](int t, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
                if (e == 0) row_lse = this->lse_of(t);
                float& x = s.c[0][t][e];
                float by_s;
                const float value = function.value(row, column, diagonal, x, by_s);
                P[e] = x <= kHiddenScore ? 0.0f : this->probability(value, this->of_query(row_lse, e));
                x = P[e] == 0.0f ? 0.0f : P[e] * by_s;
                if (e != 3) return;
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    p.a[0][t / 2][t % 2 * 2 + half] = M::pack(P[2 * half], P[2 * half + 1]);
            });
    }

    // Leaves out of P what is dropped.
    __device__ static __forceinline__ void drop(Left& p, const KeptTransposed<NT>& kept_of) {
#pragma unroll
        for (int t = 0; t < NT; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                p.a[0][t / 2][t % 2 * 2 + half] &=
                    (kept_of(t, 2 * half) ? 0xFFFFu : 0u) | (kept_of(t, 2 * half + 1) ? 0xFFFF0000u : 0u);
    }

    // The first of this warp's keys in the tile.
    __device__ static __forceinline__ int own_row(int consumer) {
        return consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
    }
};

template <KernelConfig config>
__device__ __forceinline__ void backward_sm90(const KernelParams& params) {
    run_backward_sm90<BackwardSm90<config>, config>(params);
}

}  // namespace flashtile
