// forward_sm90.h: the forward pass for Hopper, in the manner of FlashAttention-3 (arXiv 2407.08608). One warp of a
// thread block, the producer, has the copy engine bring Q and the blocks of K and V; two or three warpgroups, the
// consumers, own 64 queries each and multiply with wgmma. A consumer starts S of the next block and P V of this one
// together and computes the softmax of the next while P V still runs.
#pragma once

#include "cuda/kernels/parts/dropout.h"
#include "cuda/kernels/parts/ring.h"
#include "cuda/kernels/parts/softmax.h"
#include "cuda/kernels/parts/swizzled_store.h"
#include "cuda/kernels/ptx/mbarrier.h"
#include "cuda/kernels/ptx/tma.h"

namespace flashtile {

template <KernelConfig config>
struct ForwardSm90 {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    static constexpr int kConsumers = config.warps / 4 - 1;
    static constexpr int kColumns = chunk_columns(config.head_dim), kColumnsV = chunk_columns(config.head_dim_v);
    static constexpr int NT = config.Bc / 8, OT = kColumnsV / 8;
    static constexpr int kBytesQ = config.Br * kColumns * 2;
    static constexpr int kBytesK = config.Bc * kColumns * 2, kBytesV = config.Bc * kColumnsV * 2;
    // Registers a thread: the launch gives all the same, the producer hands most of its own on.
    static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
    static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
    static_assert(config.Br == 64 * kConsumers, "");

    const KernelParams& params;
    const Sequence seq;
    const int i0, i1;
    const int first_block, blocks;  // of keys; they are walked from the last one back
    unsigned q, k, v;               // shared addresses
    unsigned q_full;
    Ring<config.stages> k_ring, v_ring;

    __device__ __forceinline__ ForwardSm90(const KernelParams& p, const Sequence& s, unsigned memory, int row)
        : params(p),
          seq(s),
          i0(row),
          i1(smaller(row + config.Br, s.seqlen_q)),
          first_block(s.first_key<config>(i0) / config.Bc),
          blocks(block_count(s, i0, i1)),
          q(memory),
          k(q + config.Br * larger(kColumns, kColumnsV) * 2),
          v(k + config.stages * kBytesK),
          q_full(v + config.stages * kBytesV),
          k_ring{q_full + 8, q_full + 8 + config.stages * 8},
          v_ring{q_full + 8 + 2 * config.stages * 8, q_full + 8 + 3 * config.stages * 8} {}

    __device__ static __forceinline__ int block_count(const Sequence& s, int i0, int i1) {
        const int first = s.first_key<config>(i0), end = s.end_key<config>(i1);
        return first < end ? (end - 1) / config.Bc - first / config.Bc + 1 : 0;
    }
    __device__ __forceinline__ int key_of(int n) const { return (first_block + blocks - 1 - n) * config.Bc; }

    __device__ __forceinline__ void init_barriers() const {
        ptx::mbarrier_init(q_full, 1);
        for (int n = 0; n < config.stages; ++n) {
            ptx::mbarrier_init(k_ring.full + n * 8, 1);
            ptx::mbarrier_init(v_ring.full + n * 8, 1);
            // one elected thread of each consumer says that its warpgroup is done
            ptx::mbarrier_init(k_ring.empty + n * 8, kConsumers);
            ptx::mbarrier_init(v_ring.empty + n * 8, kConsumers);
        }
        ptx::fence_mbarrier_init();
    }

    // One thread: K of the first block, Q, then K of each next block before V of the one before it, as they are used.
    __device__ __forceinline__ void produce() {
        const int h = static_cast<int>(seq.h), kv_head = static_cast<int>(seq.kv_head(params));
        const int b = static_cast<int>(seq.b);
        const auto load = [&](unsigned to, const TensorMap& map, unsigned barrier, int columns, int rows, int row,
                              int head) {
            for (int c = 0; c < columns; c += kChunk) ptx::tma_load(to + c * rows * 2, &map, barrier, c, row, head, b);
        };
        const auto load_k = [&](int n) {
            ptx::mbarrier_wait(k_ring.empty_barrier(), k_ring.phase ^ 1);
            ptx::mbarrier_arrive_expect(k_ring.full_barrier(), kBytesK);
            load(k + k_ring.stage * kBytesK, params.k_map, k_ring.full_barrier(), kColumns, config.Bc,
                 key_of(n) - params.first_key, kv_head);
            k_ring.advance();
        };
        const auto load_v = [&](int n) {
            ptx::mbarrier_wait(v_ring.empty_barrier(), v_ring.phase ^ 1);
            ptx::mbarrier_arrive_expect(v_ring.full_barrier(), kBytesV);
            load(v + v_ring.stage * kBytesV, params.v_map, v_ring.full_barrier(), kColumnsV, config.Bc,
                 key_of(n) - params.first_key, kv_head);
            v_ring.advance();
        };
        if (blocks == 0) return;
        load_k(0);
        ptx::mbarrier_arrive_expect(q_full, kBytesQ);
        load(q, params.q_map, q_full, kColumns, config.Br, i0 - params.first_query, h);
        for (int n = 1; n < blocks; ++n) {
            load_k(n);
            load_v(n - 1);
        }
        load_v(blocks - 1);
    }

    __device__ __forceinline__ void consume(int consumer) {
        const int warp_i0 = i0 + consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
        const int warp_i1 = smaller(warp_i0 + 16, i1);
        const unsigned own_q = q + consumer * 64 * 128;
        const bool elected = threadIdx.x % 128 == 0;

        Fragments<1, OT> o;
        Softmax<1, config.scale_first> softmax;
        o.clear();
        softmax.start();
        if (blocks > 0) {
            Fragments<1, NT> s;
            ptx::mbarrier_wait(q_full, 0);
            ptx::mbarrier_wait(k_ring.full_barrier(), k_ring.phase);
            start(s, own_q);
            ptx::wgmma_wait<0>();
            pin(s);
            if (elected) ptx::mbarrier_arrive(k_ring.empty_barrier());
            k_ring.advance();
            modify(s, warp_i0, warp_i1, key_of(0));
            softmax.template find_maximum<config.lazy_rescale>(s, params.scale_log2);
            softmax.exponentiate(s, params.scale_log2);
            drop(s, warp_i0, key_of(0));
            auto p = M::left_of(s);
#pragma unroll 1
            for (int n = 1; n < blocks; ++n) {
                ptx::mbarrier_wait(k_ring.full_barrier(), k_ring.phase);
                start(s, own_q);
                ptx::mbarrier_wait(v_ring.full_barrier(), v_ring.phase);
                accumulate(o, p);
                ptx::wgmma_wait<1>();
                pin(s);
                if (elected) ptx::mbarrier_arrive(k_ring.empty_barrier());
                k_ring.advance();
                modify(s, warp_i0, warp_i1, key_of(n));
                softmax.template find_maximum<config.lazy_rescale>(s, params.scale_log2);
                softmax.exponentiate(s, params.scale_log2);
                drop(s, warp_i0, key_of(n));
                ptx::wgmma_wait<0>();
                pin(o);
                if (elected) ptx::mbarrier_arrive(v_ring.empty_barrier());
                v_ring.advance();
                softmax.rescale(o);
                p = M::left_of(s);
            }
            ptx::mbarrier_wait(v_ring.full_barrier(), v_ring.phase);
            accumulate(o, p);
            ptx::wgmma_wait<0>();
            pin(o);
        }
        finish(consumer, warp_i0, warp_i1, softmax, o);
    }

    // Line 8: S = Q K^T, started.
    __device__ __forceinline__ void start(Fragments<1, NT>& s, unsigned own_q) const {
        pin(s);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim), config.Br, config.Bc>(s, own_q,
                                                                                            k + k_ring.stage * kBytesK);
        ptx::wgmma_commit();
    }

    // Line 10: O += P V, started.
    __device__ __forceinline__ void accumulate(Fragments<1, OT>& o, const typename M::template Left<1, NT>& p) const {
        pin(o);
        ptx::wgmma_fence();
        start_output<config.element, config.Bc, NT>(o, p, v + v_ring.stage * kBytesV);
        ptx::wgmma_commit();
    }

    // Options and masks.
    __device__ __forceinline__ void modify(Fragments<1, NT>& s, int warp_i0, int warp_i1, int j0) const {
        const Place place{warp_i0, j0};
        if constexpr (config.scale_first) {
            each_score<1, NT>([&](int m, int n, int e) { s.c[m][n][e] *= params.scale; });
            ScoreModifier<config>::make(params, seq).template apply<false>(s, params, seq, place, s);
        }
        if (!band_covers<config>(seq, warp_i0, warp_i1, j0, j0 + config.Bc)) apply_band<config>(s, seq, place);
    }

    __device__ __forceinline__ void drop(Fragments<1, NT>& s, int warp_i0, int j0) const {
        if constexpr (config.dropout)
            each_dropped<1, NT>(dropout_of(params, seq), params, Place{warp_i0, j0},
                                [&](int m, int n, int e) { s.c[m][n][e] = 0.0f; });
    }

    // Lines 12 to 15: O = O / l, the only division; LSE = m + log l. O takes the place of this warpgroup's own Q, which
    // no other reads, and leaves from there in whole vectors.
    __device__ __forceinline__ void finish(int consumer, int warp_i0, int warp_i1,
                                           Softmax<1, config.scale_first>& softmax, Fragments<1, OT>& o) const {
        softmax.finish();
        const float kept = config.dropout ? 65536.0f / static_cast<float>(65536u - params.dropout_threshold) : 1.0f;
        ptx::named_barrier(1 + consumer, 128);  // no warp of this warpgroup still reads Q
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
        const int row = consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
        Scalar* out = rows_of<Scalar>(params.out, seq.batch_row, seq.h, seq.first_q) + warp_i0 * params.out.stride_row;
        store_warp_rows<config.element, config.head_dim_v, config.Br>(o, factor, q, row, out, params.out.stride_row,
                                                                      warp_i1 - warp_i0);
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

// One thread block a block of queries; of a head's blocks the last, which in a causal problem has most to do, first.
template <KernelConfig config>
__device__ __forceinline__ void forward_sm90(const KernelParams& params) {
    using Forward = ForwardSm90<config>;
    const Index blocks = (params.seqlen_q + config.Br - 1) / config.Br;
    const Index head = blockIdx.x / blocks;
    const Sequence seq = Sequence::make<config>(params, head / params.heads, head % params.heads);
    const int i0 = static_cast<int>(blocks - 1 - blockIdx.x % blocks) * config.Br;
    const unsigned memory = (static_cast<unsigned>(__cvta_generic_to_shared(shared_memory)) + 1023) & ~1023u;
    Forward forward(params, seq, memory, i0);
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
