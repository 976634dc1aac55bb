// backward_sm90.h: the backward pass for Hopper (FlashAttention-2's Algorithm 2, FlashAttention-3's means). A thread
// block owns 128 keys of one key head, 64 for each of its two consumer warpgroups; a producer warp has the copy engine
// bring the blocks of Q and dO that see them, of every query head of the group. S and dP are computed transposed, so
// that P^T and dS^T are in the registers from which wgmma takes its left factor for dV and dK; only dS goes through
// shared memory, for dQ, which is added to in fp32 in global memory.
#pragma once

#include "cuda/kernels/parts/query_gradient.h"
#include "cuda/kernels/parts/ring.h"
#include "cuda/kernels/parts/swizzled_store.h"
#include "cuda/kernels/parts/tile_copy.h"
#include "cuda/kernels/ptx/mbarrier.h"
#include "cuda/kernels/ptx/tma.h"

namespace flashtile {

template <KernelConfig config>
struct BackwardSm90 {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Gradient = QueryGradient<config>;
    static constexpr int kColumns = chunk_columns(config.head_dim), kColumnsV = chunk_columns(config.head_dim_v);
    static constexpr int NT = config.Br / 8, KT = kColumns / 8, VT = kColumnsV / 8;
    static constexpr int kBytesQ = config.Br * kColumns * 2, kBytesDO = config.Br * kColumnsV * 2;
    static constexpr int kBytesK = config.Bc * kColumns * 2, kBytesV = config.Bc * kColumnsV * 2;
    static constexpr int kBytesDS = config.Bc * config.Br * 2;
    static constexpr int kBytesRow = config.Br * 4;  // of LSE or D
    static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
    static constexpr unsigned kConsumerThreads = 256;
    // The barrier of the two consumers.
    static constexpr unsigned kBoth = 1;
    static_assert(config.Bc == 128 && config.warps == 12, "two consumers");
    // dQ, 64 x 64 for each consumer: of one block of rows the columns, or of one chunk of columns the rows.
    static_assert(config.Br * kColumns == 128 * 64, "");

    const KernelParams& params;
    Sequence seq;  // h is the query head at hand
    const int kv_head, block;
    const int j0, j1;  // this block's keys; those past seqlen_k only get zero gradients
    const int first_block, blocks, steps, shift;
    unsigned k, v, q, dout, ds, lse, D;  // shared addresses
    unsigned kv_full;
    unsigned turn_come, added;  // barriers between the consumers and the keeper of turns
    Ring<config.stages> q_ring, dout_ring;

    __device__ __forceinline__ BackwardSm90(const KernelParams& p, const Sequence& s, unsigned memory, int n)
        : params(p),
          seq(s),
          kv_head(static_cast<int>(s.kv_head(p))),
          block(n),
          j0(n * config.Bc),
          j1(smaller(j0 + config.Bc, s.rows_k)),
          first_block(s.first_query<config>(j0) / config.Br),
          blocks(block_count(s, j0, smaller(j1, s.seqlen_k))),
          steps(blocks * p.group),
          // Blocks of keys start at different blocks of queries, so that they do not add to the same dQ at once.
          shift(config.band || config.deterministic ? 0 : n * blocks / ((s.rows_k + config.Bc - 1) / config.Bc)),
          k(memory),
          v(k + kBytesK),
          q(v + kBytesV),
          dout(q + config.stages * kBytesQ),
          ds(dout + config.stages * kBytesDO),
          lse(ds + 2 * kBytesDS),
          D(lse + config.stages * kBytesRow),
          kv_full(D + config.stages * kBytesRow),
          turn_come(kv_full + 8),
          added(turn_come + 8) {
        dout_ring.place(q_ring.place(added + 8));
    }

    __device__ static __forceinline__ int block_count(const Sequence& s, int j0, int j_end) {
        const int first = s.first_query<config>(j0), end = j_end > j0 ? s.end_query<config>(j_end) : 0;
        return first < end ? (end - 1) / config.Br - first / config.Br + 1 : 0;
    }
    __device__ __forceinline__ int head_of(int n) const { return kv_head * params.group + n / blocks; }
    __device__ __forceinline__ int query_of(int n) const { return (first_block + (n + shift) % blocks) * config.Br; }

    __device__ __forceinline__ void init_barriers() const {
        ptx::mbarrier_init(kv_full, 1);
        ptx::mbarrier_init(turn_come, 1);
        ptx::mbarrier_init(added, kConsumerThreads / 32);
        // one elected thread of each consumer says that its warpgroup is done
        q_ring.init(2);
        dout_ring.init(2);
        ptx::fence_mbarrier_init();
    }

    // One thread: K and V, then each block of Q with its LSE and of dO with its D.
    __device__ __forceinline__ void produce() {
        const int b = static_cast<int>(seq.b);
        if (steps == 0) return;
        ptx::mbarrier_arrive_expect(kv_full, kBytesK + kBytesV);
        copy_tile(k, params.k_map, kv_full, kColumns, config.Bc, j0 - params.first_key, kv_head, b);
        copy_tile(v, params.v_map, kv_full, kColumnsV, config.Bc, j0 - params.first_key, kv_head, b);
        for (int n = 0; n < steps; ++n) {
            const int head = head_of(n), i0 = query_of(n);
            const Index row = (head * params.units + seq.first_unit(params, config.packed, config.Br)) * config.Br + i0;
            q_ring.wait_empty();
            ptx::mbarrier_arrive_expect(q_ring.full_barrier(), kBytesQ + kBytesRow);
            copy_tile(q + q_ring.stage * kBytesQ, params.q_map, q_ring.full_barrier(), kColumns, config.Br,
                      i0 - params.first_query, head, b);
            ptx::tma_load_bytes(lse + q_ring.stage * kBytesRow, params.ws_lse + row, kBytesRow, q_ring.full_barrier());
            q_ring.advance();
            dout_ring.wait_empty();
            ptx::mbarrier_arrive_expect(dout_ring.full_barrier(), kBytesDO + kBytesRow);
            copy_tile(dout + dout_ring.stage * kBytesDO, params.dout_map, dout_ring.full_barrier(), kColumnsV,
                      config.Br, i0 - params.first_query, head, b);
            ptx::tma_load_bytes(D + dout_ring.stage * kBytesRow, params.ws_D + row, kBytesRow,
                                dout_ring.full_barrier());
            dout_ring.advance();
        }
    }

    // One thread of a deterministic pass: waits for this block's turn at each unit of dQ and passes it on, so that the
    // consumers need not wait for memory.
    __device__ __forceinline__ void keep_turns() {
        for (int n = 0; n < steps; ++n) {
            seq.h = head_of(n);
            const Turn<config> turn(params, seq, block, query_of(n));
            turn.wait();
            ptx::mbarrier_arrive(turn_come);
            ptx::mbarrier_wait(added, n % 2);
            turn.pass();
        }
    }

    __device__ __forceinline__ void consume(int consumer) {
        Fragments<1, KT> dk;
        Fragments<1, VT> dv;
        dk.clear();
        dv.clear();
        if (steps > 0) ptx::mbarrier_wait(kv_full, 0);
#pragma unroll 1
        for (int n = 0; n < steps; ++n) process_block(consumer, n, dk, dv);
        ptx::named_barrier(kBoth, kConsumerThreads);  // K and V have been read for the last time
        finish(consumer, dk, dv);
    }

    // Lines 10 to 16 of Algorithm 2.
    __device__ __forceinline__ void process_block(int consumer, int n, Fragments<1, KT>& dk, Fragments<1, VT>& dv) {
        const unsigned own_rows = consumer * 64 * 128;
        const bool elected = threadIdx.x % 128 == 0;
        const int i0 = query_of(n);
        const unsigned q_now = q + q_ring.stage * kBytesQ, dout_now = dout + dout_ring.stage * kBytesDO;
        const unsigned ds_now = ds + n % 2 * kBytesDS;
        seq.h = head_of(n);

        // S^T = K Q^T, dP^T = V dO^T
        Fragments<1, NT> s, dp;
        q_ring.wait_full();
        pin(s);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim), config.Bc, config.Br>(s, k + own_rows, q_now);
        ptx::wgmma_commit();
        dout_ring.wait_full();
        pin(dp);
        ptx::wgmma_fence();
        start_scores<config.element, padded(config, config.head_dim_v), config.Bc, config.Br>(dp, v + own_rows,
                                                                                              dout_now);
        ptx::wgmma_commit();

        // P = 2^(S - LSE)
        ptx::wgmma_wait<1>();
        pin(s);
        const int warp_row = consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
        const Place place{j0 + warp_row, i0};
        if (!covered(place)) apply_band_transposed<config>(s, seq, place);
        const unsigned column = Place::column(0, 0) * 4;
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_lse = ptx::load_shared_pair(lse + q_ring.stage * kBytesRow + column + t * 32);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                s.c[0][t][e] = ptx::exp2(fmaf(s.c[0][t][e], params.scale_log2, e % 2 == 0 ? -row_lse.x : -row_lse.y));
        }
        const auto p = M::left_of(s);

        // dV += P^T dO, under which dS = P (dP - D)
        ptx::wgmma_wait<0>();
        pin(dp);
        pin(dv);
        ptx::wgmma_fence();
        start_output<config.element, config.Br, NT>(dv, p, dout_now);
        ptx::wgmma_commit();
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_D = ptx::load_shared_pair(D + dout_ring.stage * kBytesRow + column + t * 32);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // with 128 queries P as it was rounded for dV, so that S gives its registers free
                const float2 now = config.Br == 128 ? M::unpack(p.a[0][t / 2][t % 2 * 2 + half])
                                                    : make_float2(s.c[0][t][2 * half], s.c[0][t][2 * half + 1]);
                dp.c[0][t][2 * half] = now.x * (dp.c[0][t][2 * half] - row_D.x);
                dp.c[0][t][2 * half + 1] = now.y * (dp.c[0][t][2 * half + 1] - row_D.y);
            }
        }
        const auto left_ds = M::left_of(dp);
        write_ds(left_ds, ds_now, warp_row);
        ptx::fence_async_proxy();
        ptx::named_barrier(kBoth, kConsumerThreads);  // dS of both consumers stands, and dS of two blocks ago was read

        // dQ = dS K, dK += dS^T Q
        typename Gradient::Grid::Accumulators dq;
        pin(dq);
        pin(dk);
        ptx::wgmma_fence();
        start_transposed<config.element, config.Bc>(dq, ds_now + (config.Br == 128 ? consumer * config.Bc * 128 : 0),
                                                    k + (config.Br == 64 ? consumer * config.Bc * 128 : 0));
        ptx::wgmma_commit();
        start_output<config.element, config.Br, NT>(dk, left_ds, q_now);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        pin(dv);
        pin(dq);
        if (elected) dout_ring.release();
        dout_ring.advance();
        if constexpr (config.deterministic) ptx::mbarrier_wait(turn_come, n % 2);
        Gradient::add(params, seq, i0, dq);
        if constexpr (config.deterministic) {
            __syncwarp();
            if (lane_id() == 0) ptx::mbarrier_arrive(added);
        }
        ptx::wgmma_wait<0>();
        pin(dk);
        if (elected) q_ring.release();
        q_ring.advance();
    }

    __device__ __forceinline__ bool covered(const Place& place) const {
        const int i1 = place.j0 + config.Br, key_end = place.i0 + 16;
        return i1 <= seq.seqlen_q && band_covers<config>(seq, place.j0, i1, place.i0, key_end);
    }

    // dS^T to its tile: rows are keys, chunks of 64 queries.
    __device__ __forceinline__ void write_ds(const typename M::template Left<1, NT>& x, unsigned tile,
                                             int warp_row) const {
#pragma unroll
        for (int t = 0; t < NT; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + Place::row(0, 2 * half), column = Place::column(t, 0);
                ptx::store_shared(tile + column / kChunk * config.Bc * 128 + swizzled(row * 128 + column % kChunk * 2),
                                  x.a[0][t / 2][t % 2 * 2 + half]);
            }
    }

    // dK, dV leave by way of K's and V's place.
    __device__ __forceinline__ void finish(int consumer, const Fragments<1, KT>& dk, const Fragments<1, VT>& dv) const {
        const int row = consumer * 64 + static_cast<int>(warp_id() % 4) * 16;
        const float scale[2] = {params.scale, params.scale}, one[2] = {1.0f, 1.0f};
        const int first = j0 + row, count = j1 - first;
        const DeviceTensor &to_k = params.dk, &to_v = params.dv;
        store_warp_rows<config.element, config.head_dim, config.Bc>(
            dk, scale, k, row, rows_of<Scalar>(to_k, seq.batch_row, kv_head, seq.first_k) + first * to_k.stride_row,
            to_k.stride_row, count);
        store_warp_rows<config.element, config.head_dim_v, config.Bc>(
            dv, one, v, row, rows_of<Scalar>(to_v, seq.batch_row, kv_head, seq.first_k) + first * to_v.stride_row,
            to_v.stride_row, count);
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

// One thread block a block of keys.
template <KernelConfig config>
__device__ __forceinline__ void backward_sm90(const KernelParams& params) {
    using Backward = BackwardSm90<config>;
    const Index blocks = (params.seqlen_k + config.Bc - 1) / config.Bc;
    const Index head = blockIdx.x / blocks;
    const Sequence seq = Sequence::make<config>(params, head / params.kv_heads, head % params.kv_heads * params.group);
    const unsigned memory = (static_cast<unsigned>(__cvta_generic_to_shared(shared_memory)) + 1023) & ~1023u;
    Backward backward(params, seq, memory, launched_key_block<config>(blockIdx.x % blocks, blocks));
    if (threadIdx.x == 0) backward.init_barriers();
    __syncthreads();  // barriers stand
    // uniform over a warp, and the compiler may know it
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    if (warpgroup == 2) {
        ptx::registers_give_back<Backward::kProducerRegisters>();
        if (threadIdx.x == 256) backward.produce();
        if (config.deterministic && threadIdx.x == 256 + 32) backward.keep_turns();
    } else {
        ptx::registers_take<Backward::kConsumerRegisters>();
        backward.consume(warpgroup);
    }
}

}  // namespace flashtile
