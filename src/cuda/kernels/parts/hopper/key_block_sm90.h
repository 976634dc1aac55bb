// key_block_sm90.h: what both of Hopper's backward kernels share: which blocks of queries see a thread block's keys,
// where K, V, Q, dO and dS lie in shared memory, how TMA loads them, how P and dS are made of the products, and whose
// turn it is to add to dQ.
#pragma once

#include "cuda/kernels/parts/common/query_gradient.h"
#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/parts/hopper/ring.h"
#include "cuda/kernels/parts/hopper/sequence_edges.h"
#include "cuda/kernels/parts/hopper/swizzled_tile.h"
#include "cuda/kernels/parts/hopper/tile_copy.h"
#include "cuda/kernels/parts/hopper/wgmma_product.h"
#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

template <KernelConfig config>
struct KeyBlock {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Gradient = QueryGradient<config>;
    static constexpr int kColumns = chunk_columns(config.head_dim), kColumnsV = chunk_columns(config.head_dim_v);
    static constexpr int NT = config.Br / 8, KT = kColumns / 8, VT = kColumnsV / 8;
    static constexpr int kSize = size_of(config.element);
    static constexpr int kBytesQ = config.Br * kColumns * kSize, kBytesDO = config.Br * kColumnsV * kSize;
    static constexpr int kBytesK = config.Bc * kColumns * kSize, kBytesV = config.Bc * kColumnsV * kSize;
    static constexpr int kBytesDS = config.Bc * config.Br * kSize;
    static constexpr int kBytesP = handed_over_bytes(config);
    static constexpr int kBytesRow = config.Br * 4;  // of LSE or D
    static constexpr unsigned kConsumerThreads = barriers::kTwoWarpgroups;
    static_assert(config.warps == 12, "two consumers, and the producer's warpgroup");

    const KernelParams& params;
    Sequence seq;  // h is the query head of the current step
    const int kv_head, block;
    const int j0, j1;  // this block's keys; those past seqlen_k only get zero gradients
    const VisitedBlocks<int> queries;
    const int steps, shift;
    const int seen_first, seen_end;         // queries of the sequence that see any key
    unsigned k, v, q, dout, ds, p, lse, D;  // shared addresses
    unsigned kv_full;
    unsigned turn_come, added;  // barriers between the consumers and the thread that keeps turns
    Ring<config.stages> q_ring, dout_ring;

    __device__ __forceinline__ KeyBlock(const KernelParams& given, const Sequence& s, unsigned memory, int n)
        : params(given),
          seq(s),
          kv_head(static_cast<int>(s.kv_head(given))),
          block(n),
          j0(n * config.Bc),
          j1(smaller(j0 + config.Bc, s.rows_k)),
          queries{config.Br, s.first_query<config>(j0) / config.Br, block_count(s, j0, smaller(j1, s.seqlen_k))},
          steps(queries.count * given.group),
          // Blocks of keys start at different blocks of queries, so that they do not add to the same dQ at once.
          shift(config.band || config.deterministic ? 0 : n * queries.count / ((s.rows_k + config.Bc - 1) / config.Bc)),
          seen_first(s.first_query<config>(0)),
          seen_end(s.end_query<config>(s.seqlen_k)),
          k(memory),
          v(k + kBytesK),
          q(v + kBytesV),
          dout(q + config.stages * kBytesQ),
          ds(dout + config.stages * kBytesDO),
          p(ds + 2 * kBytesDS),
          lse(p + 2 * kBytesP),
          D(lse + config.stages * kBytesRow),
          kv_full(D + config.stages * kBytesRow),
          turn_come(kv_full + 8),
          added(turn_come + 8) {
        dout_ring.place(q_ring.place(added + 8));
    }

    // VisitedBlocks::holding, with its operations in the order with which ptxas spills least.
    __device__ static __forceinline__ int block_count(const Sequence& s, int j0, int j_end) {
        const int first = s.first_query<config>(j0), end = j_end > j0 ? s.end_query<config>(j_end) : 0;
        return first < end ? (end - 1) / config.Br - first / config.Br + 1 : 0;
    }

    // The walk through all steps: the blocks of queries from number `shift` on and around, head by head. It counts,
    // because a division takes as long as a part of a product.
    struct Step {
        int block, head;
    };
    __device__ __forceinline__ Step first_step() const { return {shift, kv_head * static_cast<int>(params.group)}; }
    __device__ __forceinline__ void advance(Step& step) const {
        if (++step.block == queries.count) step.block = 0;
        if (step.block == shift) ++step.head;
    }
    __device__ __forceinline__ int query_of(const Step& step) const { return queries.forwards(step.block); }

    __device__ __forceinline__ void init_barriers() const {
        ptx::mbarrier_init(kv_full, 1);
        ptx::mbarrier_init(turn_come, 1);
        ptx::mbarrier_init(added, kConsumerThreads / 32 * kArrivalsOfWarp);
        // Every warp releases a stage, since it reads LSE and D there by itself.
        q_ring.init(kConsumerThreads / 32 * kArrivalsOfWarp);
        dout_ring.init(kConsumerThreads / 32 * kArrivalsOfWarp);
        ptx::fence_mbarrier_init();
    }

    // One thread loads K and V, then every block of Q with its LSE and of dO with its D.
    __device__ __forceinline__ void produce() {
        const int b = static_cast<int>(seq.batch_row);
        const int first_q = static_cast<int>(seq.first_q) - params.first_query;
        const int first_k = static_cast<int>(seq.first_k) - params.first_key;
        if (steps == 0) return;
        ptx::mbarrier_arrive_expect(kv_full, kBytesK + kBytesV);
        copy_tile(k, params.k_map, kv_full, kColumns, config.Bc, first_k + j0, kv_head, b);
        copy_tile(v, params.v_map, kv_full, kColumnsV, config.Bc, first_k + j0, kv_head, b);
        Step step = first_step();
        for (int n = 0; n < steps; ++n, advance(step)) {
            const int head = step.head, i0 = query_of(step);
            const Index row = (head * params.units + seq.first_unit(params, config.packed, config.Br)) * config.Br + i0;
            q_ring.wait_empty();
            ptx::mbarrier_arrive_expect(q_ring.full_barrier(), kBytesQ + kBytesRow);
            copy_tile(q + q_ring.stage * kBytesQ, params.q_map, q_ring.full_barrier(), kColumns, config.Br,
                      first_q + i0, head, b);
            ptx::tma_load_bytes(lse + q_ring.stage * kBytesRow, params.ws_lse + row, kBytesRow, q_ring.full_barrier());
            q_ring.advance();
            dout_ring.wait_empty();
            ptx::mbarrier_arrive_expect(dout_ring.full_barrier(), kBytesDO + kBytesRow);
            copy_tile(dout + dout_ring.stage * kBytesDO, params.dout_map, dout_ring.full_barrier(), kColumnsV,
                      config.Br, first_q + i0, head, b);
            ptx::tma_load_bytes(D + dout_ring.stage * kBytesRow, params.ws_D + row, kBytesRow,
                                dout_ring.full_barrier());
            dout_ring.advance();
        }
    }

    // Where lengths lie in device memory, a consumer clears what TMA brought of other sequences: rows of K and V once
    // they have come, and rows of Q or dO at every step.
    __device__ __forceinline__ void clear_hidden_keys(int consumer) const {
        if constexpr (!config.lengths_differ()) return;
        const int first = seq.first_key<config>(0), end = seq.seqlen_q > 0 ? seq.end_key<config>(seq.seqlen_q) : 0;
        if (first <= j0 && end >= j0 + config.Bc) return;
        clear_outside<config.Bc, kColumns>(k, j0, first, end);
        clear_outside<config.Bc, kColumnsV>(v, j0, first, end);
        publish(consumer);
    }
    template <int kTileColumns>
    __device__ __forceinline__ void clear_hidden_queries(int consumer, int i0, unsigned tile) const {
        if constexpr (!config.lengths_differ()) return;
        if (seen_first <= i0 && seen_end >= i0 + config.Br) return;
        clear_outside<config.Br, kTileColumns>(tile, i0, seen_first, seen_end);
        publish(consumer);
    }

    // One thread of a deterministic pass: waits for this block's turn at each unit of dQ and passes it on, so that the
    // consumers need not wait for memory.
    __device__ __forceinline__ void keep_turns() {
        Step step = first_step();
        for (int n = 0; n < steps; ++n, advance(step)) {
            seq.h = step.head;
            const Turn<config> turn(params, seq, block, query_of(step));
            turn.wait();
            ptx::mbarrier_arrive(turn_come);
            ptx::mbarrier_wait(added, n % 2);
            turn.pass();
        }
    }

    __device__ __forceinline__ bool whole(const Place& place) const {
        const int i1 = place.j0 + config.Br, key_end = place.i0 + 16;
        return i1 <= seq.seqlen_q && seq.sees_all<config>(place.j0, i1, place.i0, key_end);
    }

    // S of the current block of Q becomes P = 2^(S - LSE), transposed. This warp's first row is key `warp_row`.
    __device__ __forceinline__ void exponentiate(Fragments<1, NT>& s, int i0, int warp_row) const {
        const Place place{j0 + warp_row, i0};
        if (!whole(place)) apply_band_transposed<config>(s, seq, place);
        const unsigned row = lse + q_ring.stage * kBytesRow + Place::column(0, 0) * 4;
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_lse = ptx::load_shared_pair(row + t * 32);  // KernelParams::row_flip has exchanged the two
#pragma unroll
            for (int e = 0; e < 4; ++e)
                s.c[0][t][e] = ptx::exp2(fmaf(s.c[0][t][e], params.scale_log2, e % 2 == 0 ? -row_lse.y : -row_lse.x));
        }
    }

    // dP of the current block of dO becomes dS = P (dP - D), transposed. probability(t, half) is P at accumulators 2
    // half and 2 half + 1 of t.
    template <class Probability>
    __device__ __forceinline__ void differentiate(Fragments<1, NT>& dp, Probability probability) const {
        const unsigned row = D + dout_ring.stage * kBytesRow + Place::column(0, 0) * 4;
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_D = ptx::load_shared_pair(row + t * 32);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float2 now = probability(t, half);
                dp.c[0][t][2 * half] = now.x * (dp.c[0][t][2 * half] - row_D.y);
                dp.c[0][t][2 * half + 1] = now.y * (dp.c[0][t][2 * half + 1] - row_D.x);
            }
        }
    }

    // Writes dS^T to its tile, whose rows are keys and whose chunks are of 64 queries.
    __device__ __forceinline__ void write_ds(const typename M::template Left<1, NT>& x, unsigned tile,
                                             int warp_row) const {
        write_pairs<config.Bc, NT>(tile, warp_row, [&](int t, int half) { return x.a[0][t / 2][t % 2 * 2 + half]; });
    }

    // Where this lane adds to dQ of a step: 64 rows from tile (row, column) on.
    __device__ __forceinline__ float* place_of_dq(const Step& step, int row, int column) {
        seq.h = step.head;
        return Gradient::at(params, seq, query_of(step), row + static_cast<int>(warp_id() % 4), column);
    }
    template <int OT>
    __device__ __forceinline__ void add(int n, float* to, int column, const Fragments<1, OT>& dq) const {
        if constexpr (config.deterministic) ptx::mbarrier_wait(turn_come, n % 2);
        Gradient::add(to, column, dq);
        if constexpr (config.deterministic) arrive_by_warp(added);
    }

    // Stores 64 rows of dK or dV, from row `own` of the block on, by way of K's or V's place in shared memory.
    template <int kColumnsOfAll, int OT>
    __device__ __forceinline__ void store(const Fragments<1, OT>& x, float factor, unsigned tile,
                                          const DeviceTensor& to, int own) const {
        const int row = own + static_cast<int>(warp_id() % 4) * 16, first = j0 + row;
        const float factors[2] = {factor, factor};
        store_warp_rows<config.element, kColumnsOfAll, config.Bc>(
            x, factors, tile, row, rows_of<Scalar>(to, seq.batch_row, kv_head, seq.first_k) + first * to.stride_row,
            to.stride_row, j1 - first);
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

// One thread block works on one block of keys.
template <class Backward, KernelConfig config>
__device__ __forceinline__ void run_backward_sm90(const KernelParams& params) {
    const auto own =
        HeadBlock::in_sections(params.seqlen_k, config.Bc, params.batch * params.kv_heads, params.section_heads);
    const Sequence seq = own.of_keys<config>(params);
    const unsigned memory = (static_cast<unsigned>(__cvta_generic_to_shared(shared_memory)) + 1023) & ~1023u;
    const int block = launched_key_block<config>(own);
    if (block * config.Bc >= seq.rows_k) return;  // of a sequence that is shorter than others
    Backward backward(params, seq, memory, block);
    if (threadIdx.x == 0) backward.init_barriers();
    __syncthreads();  // barriers are initialised
    // A warp's lanes have the same number; the shuffle tells the compiler so.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    // 384 threads start with 168 registers each, and the kernel redistributes them. Warpgroups that together asked for
    // more would wait for ever.
    static_assert(Backward::kProducerRegisters + 2 * Backward::kConsumerRegisters <= 3 * 168, "");
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
