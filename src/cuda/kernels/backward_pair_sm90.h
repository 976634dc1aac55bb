// backward_pair_sm90.h: Hopper's backward pass where d and dv are over 192. What bounds backward_wide_sm90.h there are
// its additions to dQ. Here two thread blocks, a cluster, work on two neighbouring blocks of keys and send each other
// their dS. Each makes half of the columns of dQ with the keys of both, which halves the additions. Both walk the same
// blocks of queries, and with `deterministic` each waits for its turn at its own half of dQ's columns. Within a thread
// block the consumers are those of backward_wide_sm90.h: the first makes P and keeps dV, the second makes dS and keeps
// dK, and each makes 64 columns of dQ. dO has one stage, and so dV is made first.
//
// dS goes from shared memory to shared memory by a bulk copy that counts at the reader's barrier other_full. Before a
// tile is written again, two blocks later, the dQ that read it must be made: by the own first consumer, which has made
// P of that block since; by the other second consumer, which has sent dS of the block between since; and by the other
// first consumer, which says so at read_ds.
#pragma once

#include "cuda/kernels/backward_wide_sm90.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardPairSm90 : BackwardWideSm90<config> {
    using Wide = BackwardWideSm90<config>;
    using typename Wide::M, typename Wide::Step, typename Wide::Left;
    using Wide::k, Wide::v, Wide::other_k, Wide::q, Wide::dout, Wide::ds, Wide::kv_full, Wide::other_full;
    using Wide::params, Wide::block, Wide::steps, Wide::q_ring, Wide::dout_ring, Wide::kConsumerThreads, Wide::read_ds;
    using Wide::Wide, Wide::KT, Wide::VT, Wide::NT, Wide::kBytesQ, Wide::kBytesDO, Wide::kBytesDS;
    using Query = Fragments<1, kChunk / 8>;  // a consumer's part of dQ
    static_assert(Wide::kPaired == 2 && Wide::kColumns == 4 * kChunk, "a chunk of dQ for each of four consumers");
    static_assert(config.stages == 2, "");

    __device__ __forceinline__ unsigned other() const { return blockIdx.x % 2 ^ 1; }

    __device__ __forceinline__ void consume(int consumer) {
        if (consumer == 0)
            make_values();
        else
            make_keys();
        ptx::cluster_wait();  // the other thread block has read the last dS
    }

    // The first consumer: P, dV and its columns of dQ.
    __device__ __forceinline__ void make_values() {
        Fragments<1, VT> dv;
        dv.clear();
        if (steps > 0) {
            ptx::mbarrier_wait(kv_full, 0);
            this->clear_hidden_keys();
            Fragments<1, NT> s;
            Step step = this->first_step();
            this->start_s(step, s);
            ptx::wgmma_wait<0>();
            const auto seen = this->seen_by(0, this->own_row());
            this->start_dv(step, dv, this->make_p(0, seen, step, s));
#pragma unroll 1
            for (int n = 0; n < steps - 1; ++n) {
                float* to = place_of_own_dq(0, step);
                this->advance(step);
                this->start_s(step, s);
                finish_dv<1>(dv);
                ptx::wgmma_wait<0>();
                const Left left_p = this->make_p(n + 1, seen, step, s);
                Query dq;
                this->wait(barriers::kFullDS, n);
                start_dq(0, n, dq);
                this->start_dv(step, dv, left_p);
                finish_dq<1>(0, n, to, dq);
            }
            finish_dv<0>(dv);
            float* to = place_of_own_dq(0, step);
            Query dq;
            this->wait(barriers::kFullDS, steps - 1);
            start_dq(0, steps - 1, dq);
            finish_dq<0>(0, steps - 1, to, dq);
        }
        ptx::cluster_arrive();
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // K and V have been read for the last time
        this->template store<config.head_dim_v>(dv, Wide::kFactorP, v, params.dv, 0);
    }

    template <int kPending>
    __device__ __forceinline__ void finish_dv(Fragments<1, VT>& dv) {
        ptx::wgmma_wait<kPending>();
        pin(dv);
        this->release_dout();
    }

    // The second consumer: dS, dK and its columns of dQ.
    __device__ __forceinline__ void make_keys() {
        Fragments<1, KT> dk;
        dk.clear();
        if (steps > 0) {
            ptx::mbarrier_wait(kv_full, 0);
            this->clear_hidden_keys();
            Fragments<1, NT> dp;
            Step step = this->first_step();
            this->start_dp(step, dp);
#pragma unroll 1
            for (int n = 0; n < steps - 1; ++n) {
                start_dk(step, dk, make_ds(n, dp));
                float* to = place_of_own_dq(1, step);
                Query dq;
                start_dq(1, n, dq);
                finish_dk(dk);
                this->advance(step);
                this->start_dp(step, dp);
                finish_dq<1>(1, n, to, dq);
            }
            start_dk(step, dk, make_ds(steps - 1, dp));
            float* to = place_of_own_dq(1, step);
            Query dq;
            start_dq(1, steps - 1, dq);
            finish_dk(dk);
            finish_dq<0>(1, steps - 1, to, dq);
        }
        ptx::cluster_arrive();
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // K and V have been read for the last time
        this->template store<config.head_dim>(dk, params.scale, k, params.dk, 0);
    }

    // Makes dS of block n, in registers for dK and as a tile for dQ, and sends the tile to the other thread block.
    __device__ __forceinline__ Left make_ds(int n, Fragments<1, NT>& dp) {
        q_ring.wait_full();  // D comes with Q
        this->differentiate_block(n, dp);
        const Left left_ds = M::left_of(dp);
        const unsigned own = ds + n % 2 * kBytesDS;
        if (n >= 2) ptx::mbarrier_wait(read_ds + n % 2 * 8, (n / 2 - 1) % 2);
        this->write_ds(left_ds, own, this->own_row());
        ptx::fence_async_proxy();
        this->arrive(barriers::kFullDS, n);
        ptx::named_barrier(barriers::kOwn, barriers::kWarpgroup);  // all four warps have written dS
        if (threadIdx.x % 128 == 0) {
            // This thread has waited for the barrier's phase before, two blocks ago.
            const unsigned full = other_full + n % 2 * 8;
            ptx::copy_to(other(), own + 2 * kBytesDS, own, kBytesDS, full);
            ptx::mbarrier_arrive_expect(full, kBytesDS);
        }
        return left_ds;
    }

    // dK += dS^T Q
    __device__ __forceinline__ void start_dk(const Step& step, Fragments<1, KT>& dk, const Left& left_ds) const {
        this->clear_q(1, step);
        pin(dk);
        ptx::wgmma_fence();
        start_output<config.element, config.Br, NT>(dk, left_ds, q + q_ring.stage * kBytesQ);
        ptx::wgmma_commit();
    }

    // dQ is still running.
    __device__ __forceinline__ void finish_dk(Fragments<1, KT>& dk) {
        ptx::wgmma_wait<1>();
        pin(dk);
        q_ring.release_by_warp();
        q_ring.advance();
    }

    __device__ __forceinline__ int own_chunk(int consumer) const {
        return static_cast<int>(blockIdx.x % 2) * 2 + consumer;
    }
    __device__ __forceinline__ float* place_of_own_dq(int consumer, const Step& step) {
        return this->place_of_dq(step, 0, own_chunk(consumer) * (kChunk / 8));
    }

    // dQ = dS K, of this consumer's columns, with the own keys and then those of the other thread block.
    __device__ __forceinline__ void start_dq(int consumer, int n, Query& dq) const {
        constexpr int kChunkBytes = config.Bc * kChunkRowBytes;
        const unsigned own = ds + n % 2 * kBytesDS;
        pin(dq);
        ptx::wgmma_fence();
        start_transposed<config.element, config.Bc>(dq, own, k + own_chunk(consumer) * kChunkBytes);
        ptx::mbarrier_wait(other_full + n % 2 * 8, n / 2 % 2);
        start_transposed<config.element, config.Bc>(dq, own + 2 * kBytesDS, other_k + consumer * kChunkBytes, true);
        ptx::wgmma_commit();
    }

    // dS of block n has been read, and dQ is added.
    template <int kPending>
    __device__ __forceinline__ void finish_dq(int consumer, int n, float* to, Query& dq) const {
        ptx::wgmma_wait<kPending>();
        pin(dq);
        if (consumer == 0 && n + 2 < steps) by_warp([&] { ptx::mbarrier_arrive_in(other(), read_ds + n % 2 * 8); });
        this->add(n, to, own_chunk(consumer) * (kChunk / 8), dq);
    }
};

template <KernelConfig config>
__device__ __forceinline__ void backward_pair_sm90(const KernelParams& params) {
    run_backward_sm90<BackwardPairSm90<config>, config>(params);
}

}  // namespace flashtile
