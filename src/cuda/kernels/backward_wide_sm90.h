// backward_wide_sm90.h: Hopper's backward pass where d is over 192 or dv over 128, or d over 128 with exact_max. dK and
// dV of 64 keys then fill the registers of a warpgroup each, so that the two consumers share the same 64 keys. The
// first makes P and keeps dV, the second makes dS and keeps dK, and each makes half of the columns of dQ. P goes from
// the first to the second through shared memory, and dS goes back. The first is a block ahead: the scores of its next
// block are computed beside dV. P is handed over in fp16 whatever the tensors' type is, since of a P in bf16 dS would
// have errors of its own; with exact_max, in fp32, one block at a time.
#pragma once

#include "cuda/kernels/parts/hopper/key_block_sm90.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardWideSm90 : KeyBlock<config> {
    using Base = KeyBlock<config>;
    using Base::Base, Base::KT, Base::VT, Base::NT, Base::kBytesQ, Base::kBytesDO, Base::kBytesDS, Base::kBytesP;
    using Base::k, Base::v, Base::q, Base::dout, Base::ds, Base::p, Base::kv_full;
    using Base::params, Base::seq, Base::steps, Base::q_ring, Base::dout_ring, Base::kConsumerThreads;
    using typename Base::M, typename Base::Step, typename Base::Seen;
    using Left = typename M::template Left<1, NT>;
    using typename Base::Packed, typename Base::PackedP;
    static constexpr bool kWidest = Base::kColumns + Base::kColumnsV > 384;
    static constexpr int kProducerRegisters = kWidest ? 24 : 40, kConsumerRegisters = kWidest ? 240 : 232;
    static constexpr int kTilesP = config.exact_max ? 1 : 2;     // one in fp32 takes the place of two
    static constexpr bool kKeepsAddresses = Base::kPaired == 2;  // else other values take all registers
    static_assert(config.Br == 64 && config.Bc == 64, "one wgmma of 64 rows and columns");

    // Chunks of dQ's columns that the first consumer makes; the other makes the rest.
    static constexpr int kChunks = Base::kColumns / kChunk, kFirstChunks = (kChunks + 1) / 2;

    // At a barrier between the consumers, of which even and odd blocks have one each.
    __device__ static __forceinline__ void wait(unsigned barrier, int n) {
        ptx::named_barrier(barrier + n % 2, kConsumerThreads);
    }
    __device__ static __forceinline__ void arrive(unsigned barrier, int n) {
        ptx::named_barrier_arrive(barrier + n % 2, kConsumerThreads);
    }

    // The first of this warp's keys in the block.
    __device__ static __forceinline__ int own_row() { return static_cast<int>(warp_id() % 4) * 16; }

    __device__ __forceinline__ void consume(int consumer) {
        if (consumer == 0)
            make_values();
        else
            make_keys();
    }

    // As KeyBlock has it, but from the step's head: a step's unit would be one value more to keep.
    __device__ __forceinline__ float* place_of_dq(const Step& step, int row, int column) {
        if constexpr (config.packed) return Base::place_of_dq(step, row, column);
        seq.h = step.head;
        return Base::Gradient::at(params, seq, this->query_of(step), row + static_cast<int>(warp_id() % 4), column);
    }

    // The first consumer: P, dV and its columns of dQ.
    __device__ __forceinline__ void make_values() {
        Fragments<1, VT> dv;
        dv.clear();
        if (steps > 0) {
            ptx::mbarrier_wait(kv_full, 0);
            this->clear_hidden_keys();
            Fragments<1, NT> s;
            Step step = this->first_step(), next = step;
            start_s(step, s);
            ptx::wgmma_wait<0>();
            const Seen seen = this->seen_by(0, own_row());
            make_p(0, seen, step, s);
#pragma unroll 1
            for (int n = 0; n < steps - 1; ++n, step = next) {
                const Left left_p = read_p(n);
                this->advance(next);
                start_s(next, s);
                start_dv(step, dv, left_p);
                ptx::wgmma_wait<1>();
                make_p(n + 1, seen, next, s);
                finish_dv(n, step, dv);
            }
            start_dv(step, dv, read_p(steps - 1));
            finish_dv(steps - 1, step, dv);
        }
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // K and V have been read for the last time
        this->template store<config.head_dim_v>(dv, Base::kFactorP, v, params.dv, 0);
    }

    // Each consumer clears rows of other sequences before it uses a stage.
    __device__ __forceinline__ void clear_q(int consumer, const Step& step) const {
        this->template clear_hidden_queries<Base::kColumns>(consumer, this->query_of(step), q + q_ring.stage * kBytesQ);
    }
    __device__ __forceinline__ void clear_dout(int consumer, const Step& step) const {
        this->template clear_hidden_queries<Base::kColumnsV>(consumer, this->query_of(step),
                                                             dout + dout_ring.stage * kBytesDO);
    }

    __device__ __forceinline__ unsigned dout_now() const {
        return this->anew(dout + dout_ring.stage * kBytesDO);
    }

    // S^T = K Q^T
    __device__ __forceinline__ void start_s(const Step& step, Fragments<1, NT>& s) const {
        q_ring.wait_full();
        clear_q(0, step);
        pin(s);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim), config.Bc, config.Br>(s, this->anew(k),
                                                                                            q + q_ring.stage * kBytesQ);
        ptx::wgmma_commit();
    }

    // dV += P^T dO
    __device__ __forceinline__ void start_dv(const Step& step, Fragments<1, VT>& dv, const Left& left_p) const {
        dout_ring.wait_full();
        clear_dout(0, step);
        pin(dv);
        ptx::wgmma_fence();
        start_output<config.element, config.Br, NT>(dv, left_p, dout_now());
        ptx::wgmma_commit();
    }

    // S of the current block of Q becomes P.
    __device__ __forceinline__ void make_probabilities(const Seen& seen, const Step& step, Fragments<1, NT>& s) {
        pin(s);
        this->make_scores(s, step, seen, own_row());
        this->exponentiate(s);
        q_ring.release_by_warp();
        q_ring.advance();
    }
    // P of block n, in its tile and as the left factor of dV, of which the tile has more digits.
    __device__ __forceinline__ Left make_p(int n, const Seen& seen, const Step& step, Fragments<1, NT>& s) {
        make_probabilities(seen, step, s);
        if (n >= kTilesP) wait(barriers::kReadP, n + kTilesP);
        const Left left_p = write_p(n, s);
        arrive(barriers::kFullP, n);
        return left_p;
    }
    __device__ __forceinline__ Left write_p(int n, const Fragments<1, NT>& s) const {
        if constexpr (config.exact_max) {
#pragma unroll
            for (int t = 0; t < NT; ++t) {
                const float(&x)[4] = s.c[0][t];
                ptx::store_shared(place_of_p(0, t), make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]),
                                                               __float_as_uint(x[2]), __float_as_uint(x[3])));
            }
            return M::left_of(s);
        } else {
            Left left_p;
#pragma unroll
            for (int c = 0; c < NT / 2; ++c) {
                unsigned handed[4];
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const float* pair = s.c[0][2 * c + r / 2] + r % 2 * 2;
                    handed[r] = Packed::pack(pair[0], pair[1]);
                    left_p.a[0][c][r] = M::pack(pair[0], pair[1]);
                }
                ptx::store_shared(place_of_p(n, c), make_uint4(handed[0], handed[1], handed[2], handed[3]));
            }
            return left_p;
        }
    }

    // The same lane of either consumer needs the same part of P.
    __device__ __forceinline__ PackedP read_handed(int n) const {
        PackedP handed;
#pragma unroll
        for (int c = 0; c < NT / 2; ++c) {
            const uint4 x = ptx::load_shared(place_of_p(n, c));
            handed.a[0][c][0] = x.x, handed.a[0][c][1] = x.y, handed.a[0][c][2] = x.z, handed.a[0][c][3] = x.w;
        }
        return handed;
    }
    // The left factor of dV, read back: registers that a running product reads may not be written.
    __device__ __forceinline__ Left read_p(int n) const {
        if constexpr (config.exact_max) {
            Fragments<1, NT> x;
#pragma unroll
            for (int t = 0; t < NT; ++t)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float2 pair = read_exact(t, half);
                    x.c[0][t][2 * half] = pair.x, x.c[0][t][2 * half + 1] = pair.y;
                }
            return M::left_of(x);
        } else {
            return Base::left_of_packed(read_handed(n));
        }
    }
    // Accumulators 2 half and 2 half + 1 of t in fp32. A tile of P in fp32 takes the place of two.
    __device__ __forceinline__ float2 read_exact(int t, int half) const {
        return ptx::load_shared_pair(place_of_p(0, t) + half * 8);
    }
    __device__ __forceinline__ unsigned place_of_p(int n, int c) const {
        return p + n % 2 * kBytesP + (c * 128 + threadIdx.x % 128) * 16;
    }

    __device__ __forceinline__ void finish_dv(int n, const Step& step, Fragments<1, VT>& dv) {
        ptx::wgmma_wait<0>();
        pin(dv);
        release_dout();
        float* to = this->place_of_dq(step, 0, 0);
        wait(barriers::kFullDS, n);
        Fragments<1, 8 * kFirstChunks> dq;
        start_dq(n, dq, 0);
        ptx::wgmma_wait<0>();
        pin(dq);
        if (n + 2 < steps) arrive(barriers::kReadDS, n);
        this->add(n, to, 0, dq);
    }

    // dQ = dS K, of the columns from a chunk on.
    template <int OT>
    __device__ __forceinline__ void start_dq(int n, Fragments<1, OT>& dq, int chunk) const {
        pin(dq);
        ptx::wgmma_fence();
        start_transposed<config.element, config.Bc>(dq, ds + n % 2 * kBytesDS, k + chunk * config.Bc * kChunkRowBytes);
        ptx::wgmma_commit();
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
            start_dp(step, dp);
#pragma unroll 1
            for (int n = 0; n < steps - 1; ++n) {
                start_dk(n, step, dk, make_ds(n, dp));
                this->advance(step);
                start_dp(step, dp);
                finish_dk<1>(dk);
            }
            start_dk(steps - 1, step, dk, make_ds(steps - 1, dp));
            finish_dk<0>(dk);
        }
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // K and V have been read for the last time
        this->template store<config.head_dim>(dk, params.scale, k, params.dk, 0);
    }

    // dP^T = V dO^T
    __device__ __forceinline__ void start_dp(const Step& step, Fragments<1, NT>& dp) const {
        dout_ring.wait_full();
        clear_dout(1, step);
        pin(dp);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim_v), config.Bc, config.Br>(dp, v, dout_now());
        ptx::wgmma_commit();
    }

    // dP of block n, which is running, becomes dS. Then P has been read, and dO.
    __device__ __forceinline__ void differentiate_block(int n, Fragments<1, NT>& dp) {
        const auto finish_dp = [&] {
            ptx::wgmma_wait<0>();
            pin(dp);
            if constexpr (Base::kRowsWithQ) release_dout();
        };
        wait(barriers::kFullP, n);
        if constexpr (config.exact_max) {
            finish_dp();
            this->differentiate(dp, [&](int t, int half) { return read_exact(t, half); });
            if (n + kTilesP < steps) arrive(barriers::kReadP, n);
        } else {
            const PackedP handed = read_handed(n);
            if (n + kTilesP < steps) arrive(barriers::kReadP, n);
            finish_dp();
            this->differentiate(dp, [&](int t, int half) { return Base::of_packed(handed, t, half); });
        }
        if constexpr (!Base::kRowsWithQ) release_dout();  // D comes with dO
    }
    __device__ __forceinline__ void release_dout() {
        dout_ring.release_by_warp();
        dout_ring.advance();
    }

    // Makes dS of block n, in registers for dK and as a tile for dQ.
    __device__ __forceinline__ Left make_ds(int n, Fragments<1, NT>& dp) {
        differentiate_block(n, dp);
        const Left left_ds = M::left_of(dp);
        if (n >= 2) wait(barriers::kReadDS, n);
        this->write_ds(left_ds, ds + n % 2 * kBytesDS, own_row());
        ptx::fence_async_proxy();
        arrive(barriers::kFullDS, n);
        ptx::named_barrier(barriers::kOwn, barriers::kWarpgroup);  // all four warps have written dS
        return left_ds;
    }

    // dQ = dS K, of the other columns, and dK += dS^T Q
    __device__ __forceinline__ void start_dk(int n, const Step& step, Fragments<1, KT>& dk, const Left& left_ds) {
        float* to = this->place_of_dq(step, 0, 8 * kFirstChunks);
        q_ring.wait_full();
        clear_q(1, step);
        Fragments<1, 8 * (kChunks - kFirstChunks)> dq;
        start_dq(n, dq, kFirstChunks);
        pin(dk);
        ptx::wgmma_fence();
        start_output<config.element, config.Br, NT>(dk, left_ds, q + q_ring.stage * kBytesQ);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        pin(dq);
        this->add(n, to, 8 * kFirstChunks, dq);
    }

    template <int kPending>
    __device__ __forceinline__ void finish_dk(Fragments<1, KT>& dk) {
        ptx::wgmma_wait<kPending>();
        pin(dk);
        q_ring.release_by_warp();
        q_ring.advance();
    }
};

template <KernelConfig config>
__device__ __forceinline__ void backward_wide_sm90(const KernelParams& params) {
    run_backward_sm90<BackwardWideSm90<config>, config>(params);
}

}  // namespace flashtile
