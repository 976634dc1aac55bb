// backward_sm90.h: the backward pass for Hopper (FlashAttention-2's Algorithm 2 with FlashAttention-3's means). A
// thread block owns 128 keys of one key head, 64 for each of its two consumer warpgroups. A producer warp loads with
// TMA the blocks of Q and dO that see these keys, of every query head of the group. S and dP are computed transposed,
// so that P^T and dS^T are in the registers from which wgmma takes its left factor for dV and dK. Only dS goes through
// shared memory, for dQ, which is added to in fp32 in global memory. (Heads wider than 128 have backward_wide_sm90.h.)
#pragma once

#include "cuda/kernels/parts/hopper/key_block_sm90.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardSm90 : KeyBlock<config> {
    using Base = KeyBlock<config>;
    using Base::Base, Base::KT, Base::VT, Base::NT, Base::kBytesQ, Base::kBytesDO, Base::kBytesDS;
    using Base::k, Base::v, Base::q, Base::dout, Base::ds, Base::kv_full;
    using Base::params, Base::seq, Base::steps, Base::q_ring, Base::dout_ring, Base::kConsumerThreads;
    using typename Base::M, typename Base::Step;
    // With 128 queries P and dP take 64 registers each, so that P is rounded for dV only once dS is made of it.
    static constexpr bool kRoundsLate = config.Br == 128;
    // The first chunk of V lies in registers, because products of two factors in shared memory take all of its
    // bandwidth. The producer gives up some of its registers for that, where it has no lengths to look up and keeps no
    // turns.
    static constexpr bool kKeepsValues = config.Br == 64 && !config.lengths_differ() && !config.deterministic;
    static constexpr int kKeptColumns =
        !kKeepsValues ? 0 : (padded(config, config.head_dim_v) < kChunk ? padded(config, config.head_dim_v) : kChunk);
    static constexpr int kOtherColumns = padded(config, config.head_dim_v) - kKeptColumns;
    using Kept = typename M::template Left<1, kChunk / 8>;
    using Left = typename M::template Left<1, NT>;
    static constexpr bool kManyRegisters = kKeepsValues || kRoundsLate;
    static constexpr int kProducerRegisters = kManyRegisters ? 24 : 40, kConsumerRegisters = kManyRegisters ? 240 : 232;
    // Each of the two consumers makes 64 x 64 of dQ: half of the columns of 64 rows, or half of the rows of 64 columns.
    static_assert(config.Br * Base::kColumns == 128 * 64 && config.Bc == 128, "");

    __device__ __forceinline__ void consume(int consumer) {
        Fragments<1, KT> dk;
        Fragments<1, VT> dv;
        dk.clear();
        dv.clear();
        Kept kept;
        if (steps > 0) {
            ptx::mbarrier_wait(kv_full, 0);
            this->clear_hidden_keys(consumer);
            if constexpr (kKeepsValues) kept = read_left<config.element>(v, own_row(consumer));
        }
        Step step = this->first_step();
#pragma unroll 1
        for (int n = 0; n < steps; ++n, this->advance(step)) process_block(consumer, n, step, kept, dk, dv);
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // K and V have been read for the last time
        this->template store<config.head_dim>(dk, params.scale, k, params.dk, consumer * 64);
        this->template store<config.head_dim_v>(dv, 1.0f, v, params.dv, consumer * 64);
    }

    // Whether a query of the block sees one of this consumer's keys: under a causal mask those of the first block need
    // not.
    __device__ __forceinline__ bool sees(int consumer, int i0) const {
        if constexpr (!config.band || config.Br > 64) return true;
        return seq.template end_key<config>(smaller(i0 + config.Br, seq.seqlen_q)) > this->j0 + consumer * 64;
    }

    // Lines 10 to 16 of Algorithm 2.
    __device__ __forceinline__ void process_block(int consumer, int n, const Step& step, const Kept& kept,
                                                  Fragments<1, KT>& dk, Fragments<1, VT>& dv) {
        const int i0 = this->query_of(step);
        const unsigned ds_now = ds + n % 2 * kBytesDS;
        Left p, left_ds{};  // both stay until the products that read them are done
        if (sees(consumer, i0)) {
            left_ds = make_ds(consumer, i0, ds_now, kept, dv, p);
        } else {
            this->write_ds(left_ds, ds_now, own_row(consumer));
            q_ring.wait_full();
            this->template clear_hidden_queries<Base::kColumns>(consumer, i0, q + q_ring.stage * kBytesQ);
        }
        ptx::fence_async_proxy();
        // dS of both consumers is written, and dS of two blocks ago was read
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);

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
        ptx::wgmma_wait<1>();
        pin(dv);
        pin(dq);
        dout_ring.release_by_warp();
        dout_ring.advance();
        this->add(n, to, column, dq);
        ptx::wgmma_wait<0>();
        pin(dk);
        q_ring.release_by_warp();
        q_ring.advance();
    }

    // This consumer's part of dS, in registers and in its tile, and dV, whose product of P is left
    // running.
    __device__ __forceinline__ Left make_ds(int consumer, int i0, unsigned ds_now, const Kept& kept,
                                            Fragments<1, VT>& dv, Left& p) {
        const unsigned own_rows = consumer * 64 * kChunkRowBytes;
        const unsigned q_now = q + q_ring.stage * kBytesQ, dout_now = dout + dout_ring.stage * kBytesDO;

        // S^T = K Q^T, dP^T = V dO^T
        Fragments<1, NT> s, dp;
        q_ring.wait_full();
        this->template clear_hidden_queries<Base::kColumns>(consumer, i0, q_now);
        pin(s);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim), config.Bc, config.Br>(s, k + own_rows, q_now);
        ptx::wgmma_commit();
        dout_ring.wait_full();
        this->template clear_hidden_queries<Base::kColumnsV>(consumer, i0, dout_now);
        pin(dp);
        ptx::wgmma_fence();
        if constexpr (kKeepsValues) start_scores<config.element, kKeptColumns, config.Br>(dp, kept, dout_now);
        constexpr int kKeptChunks = kKeepsValues ? 1 : 0;
        if constexpr (kOtherColumns > 0)
            start_scores<config.element, kOtherColumns, config.Bc, config.Br>(
                dp, v + kKeptChunks * config.Bc * kChunkRowBytes + own_rows,
                dout_now + kKeptChunks * config.Br * kChunkRowBytes, kKeepsValues);
        ptx::wgmma_commit();

        // P = 2^(S - LSE)
        ptx::wgmma_wait<1>();
        pin(s);
        this->exponentiate(s, i0, own_row(consumer));
        if constexpr (!kRoundsLate) p = M::left_of(s);

        // dS = P (dP - D)
        ptx::wgmma_wait<0>();
        pin(dp);
        this->differentiate(dp,
                            [&](int t, int half) { return make_float2(s.c[0][t][2 * half], s.c[0][t][2 * half + 1]); });
        const Left left_ds = M::left_of(dp);
        this->write_ds(left_ds, ds_now, own_row(consumer));

        // dV += P^T dO, which starts before dS is published: the other consumer waits for that no longer than for dV
        if constexpr (kRoundsLate) p = M::left_of(s);
        pin(dv);
        ptx::wgmma_fence();
        start_output<config.element, config.Br, NT>(dv, p, dout_now);
        ptx::wgmma_commit();
        return left_ds;
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
