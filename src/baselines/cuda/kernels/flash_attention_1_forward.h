// flash_attention_1_forward.h: FlashAttention's forward pass (arXiv 2205.14135, Algorithm 2) with the work partition
// that the FlashAttention-2 paper compares with, on the building blocks of our own general kernels. Each of the three
// things that FlashAttention-2 changed is a switch (work_partition.h). What stands in braces below is one of its sides.
#pragma once

#include "baselines/cuda/kernels/split_keys.h"
#include "cuda/kernels/parts/mma/tile_load.h"
#include "cuda/kernels/parts/mma/tile_store.h"

namespace flashtile {

template <KernelConfig config, WorkPartition ways>
struct FlashAttention1Forward {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    static constexpr int kThreads = config.warps * 32;
    static constexpr int kColumns = padded(config, config.head_dim), kPitch = pitch(config, config.head_dim);
    static constexpr int kQueryStages = query_stages(config, ways), kKeyStages = key_stages(config, ways);
    // S: the warps lie below each other where they split queries, else side by side.
    using ScoreGrid = WarpGrid<config.Br, config.Bc, config.warps, ways.split_queries ? config.warps : 1>;
    using Scores = typename ScoreGrid::Accumulators;
    // O, m and l: a warp owns some of the rows either way.
    using OutputGrid = WarpGrid<config.Br, kColumns, config.warps, config.warps>;
    using Output = typename OutputGrid::Accumulators;
    using OwnRows = Softmax<OutputGrid::MT, false>;
    using ScoreRows = Softmax<ScoreGrid::MT, false>;

    // A block of queries as far as keys have been seen. Where warps split keys, all of them need m of all rows.
    struct State {
        Output o;
        OwnRows rows;      // l is, with `deferred`, this lane's share of the row's
        ScoreRows scores;  // of S's rows; where warps split queries, these are the own rows, and this is not used
    };

    const KernelParams& params;
    const Sequence seq;
    Scalar *q, *k, *v;
    const Scalar *from_k, *from_v;
    const SplitKeys<config, !ways.split_queries> exchange;
    const float factor;

    __device__ __forceinline__ FlashAttention1Forward(const KernelParams& p, const Sequence& s, unsigned char* memory)
        : params(p),
          seq(s),
          q(reinterpret_cast<Scalar*>(memory)),
          k(q + kQueryStages * config.Br * kPitch),
          v(k + kKeyStages * config.Bc * kPitch),
          from_k(rows_of<Scalar>(p.k, s.b, s.h, 0)),
          from_v(rows_of<Scalar>(p.v, s.b, s.h, 0)),
          exchange(reinterpret_cast<unsigned char*>(v + kKeyStages * config.Bc * kPitch)),
          factor(log2_factor<config>(p)) {}

    __device__ __forceinline__ Scalar* q_stage(int stage) const { return q + stage * config.Br * kPitch; }

    __device__ __forceinline__ void clear_paddings() const {
        clear_padding<Scalar, kQueryStages * config.Br + 2 * kKeyStages * config.Bc, config.head_dim, kColumns, kPitch,
                      kThreads>(q);
    }
    __device__ __forceinline__ void load_queries(int stage, int i0) const {
        load_tile<Scalar, config.Br, config.head_dim, kPitch, kThreads, config.vector_bytes>(
            q_stage(stage), rows_of<Scalar>(params.q, seq.b, seq.h, 0), params.q.stride_row, i0, 0, seq.seqlen_q);
    }
    __device__ __forceinline__ void load_keys(int stage, int j0) const {
        load_tile<Scalar, config.Bc, config.head_dim, kPitch, kThreads, config.vector_bytes>(
            k + stage * config.Bc * kPitch, from_k, params.k.stride_row, j0, 0, seq.seqlen_k);
        load_tile<Scalar, config.Bc, config.head_dim, kPitch, kThreads, config.vector_bytes>(
            v + stage * config.Bc * kPitch, from_v, params.v.stride_row, j0, 0, seq.seqlen_k);
    }

    // --- section 3.2: {a thread block owns queries}, or {a head, with keys in the outer loop} ---

    __device__ __forceinline__ void run_queries(int i0) const {
        const int i1 = smaller(i0 + config.Br, seq.seqlen_q);
        const auto keys = VisitedBlocks<int>::holding(0, seq.end_key<config>(i1), config.Bc);
        State state;
        start(state);
        if (keys.count > 0) clear_paddings(), load_queries(0, i0);
#pragma unroll
        for (int n = 0; n < config.stages - 1; ++n) {
            if (n < keys.count) load_keys(n, keys.backwards(n));
            ptx::cp_async_commit();
        }
        int stage = 0;
#pragma unroll 1
        for (int n = 0; n < keys.count; ++n) {
            ptx::cp_async_wait<config.stages - 2>();
            __syncthreads();  // block n has come, and none still reads the stage that is filled next
            const int ahead = n + config.stages - 1;
            if (ahead < keys.count) load_keys(stage == 0 ? config.stages - 1 : stage - 1, keys.backwards(ahead));
            ptx::cp_async_commit();
            step(state, q, k + stage * config.Bc * kPitch, v + stage * config.Bc * kPitch, i0, i1, keys.backwards(n));
            stage = stage == config.stages - 1 ? 0 : stage + 1;
        }
        finish(state, q, i0, i1);
    }

    __device__ __forceinline__ void run_head() const {
        const int row_blocks = (seq.seqlen_q + config.Br - 1) / config.Br;
        clear_paddings();
        // Without keys there is a first block all the same, in which every row finds that it sees none.
#pragma unroll 1
        for (int j0 = 0; j0 == 0 || j0 < seq.seqlen_k; j0 += config.Bc) {
            const int first = j0 == 0 ? 0 : seq.first_query<config>(j0) / config.Br;
            __syncthreads();  // none still reads K, V and Q
            load_keys(0, j0);
#pragma unroll
            for (int n = 0; n < config.stages - 1; ++n) {
                if (first + n < row_blocks) load_queries(n, (first + n) * config.Br);
                ptx::cp_async_commit();
            }
            int stage = 0;
#pragma unroll 1
            for (int block = first; block < row_blocks; ++block) {
                ptx::cp_async_wait<config.stages - 2>();
                __syncthreads();  // Q of this block has come, and none still reads the stage that is filled next
                const int ahead = block + config.stages - 1;
                if (ahead < row_blocks) load_queries(stage == 0 ? config.stages - 1 : stage - 1, ahead * config.Br);
                ptx::cp_async_commit();
                visit(q_stage(stage), block, j0);
                stage = stage == config.stages - 1 ? 0 : stage + 1;
            }
        }
    }

    // Algorithm 2, lines 8 to 16: O, m and l of a block of queries come from memory, and go back there.
    __device__ __forceinline__ void visit(Scalar* tile_q, int block, int j0) const {
        const int i0 = block * config.Br, i1 = smaller(i0 + config.Br, seq.seqlen_q);
        State state;
        if (j0 == 0)
            start(state);
        else
            load(state, block, i0, i1);
        step(state, tile_q, k, v, i0, i1, j0);
        if (j0 + config.Bc >= seq.end_key<config>(i1))
            finish(state, tile_q, i0, i1);
        else
            store(state, block, i0, i1);
    }

    __device__ __forceinline__ void start(State& state) const {
        state.o.clear();
        state.rows.start(factor);
        state.scores.start(factor);
    }

    // O in fp32, as this warp's accumulators hold it, so that a warp moves whole cache lines.
    __device__ __forceinline__ float4* state_of(int block) const {
        const Index blocks = (params.seqlen_q + config.Br - 1) / config.Br;
        const Index unit = (seq.b * params.heads + seq.h) * blocks + block;
        return reinterpret_cast<float4*>(params.ws_part_o + unit * (config.Br * kColumns)) +
               OutputGrid::row() / 16 * (kColumns / 8) * static_cast<int>(kLanes) + lane_id();
    }
    __device__ __forceinline__ float2* ml_of(int i) const {
        return reinterpret_cast<float2*>(params.ws_part_ml) + (seq.b * params.heads + seq.h) * params.seqlen_q + i;
    }

    __device__ __forceinline__ void load(State& state, int block, int i0, int i1) const {
        const float4* from = state_of(block);
#pragma unroll
        for (int m = 0; m < OutputGrid::MT; ++m)
#pragma unroll
            for (int n = 0; n < OutputGrid::NT; ++n) {
                const float4 x = from[(m * OutputGrid::NT + n) * kLanes];
                float(&c)[4] = state.o.c[m][n];
                c[0] = x.x, c[1] = x.y, c[2] = x.z, c[3] = x.w;
            }
        load_rows(state.rows, i0 + OutputGrid::row(), i1);
        if constexpr (!ways.split_queries) load_rows(state.scores, i0, i1);
    }
    template <int MT>
    __device__ __forceinline__ void load_rows(Softmax<MT, false>& rows, int i0, int i1) const {
        rows.start(factor);
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = i0 + Place::row(m, 2 * half);
                if (i >= i1) continue;
                const float2 ml = *ml_of(i);
                rows.m[m].set(half, ml.x);
                rows.l[m][half] = !ways.deferred || lane_id() % 4 == 0 ? ml.y : 0.0f;
            }
    }
    __device__ __forceinline__ void store(State& state, int block, int i0, int i1) const {
        float4* to = state_of(block);
#pragma unroll
        for (int m = 0; m < OutputGrid::MT; ++m)
#pragma unroll
            for (int n = 0; n < OutputGrid::NT; ++n) {
                const float(&c)[4] = state.o.c[m][n];
                to[(m * OutputGrid::NT + n) * kLanes] = make_float4(c[0], c[1], c[2], c[3]);
            }
        if constexpr (ways.deferred) state.rows.finish();
        store_rows(state.rows, i0 + OutputGrid::row(), i1);
    }
    __device__ __forceinline__ void store_rows(const OwnRows& rows, int i0, int i1) const {
        if (lane_id() % 4 != 0) return;
#pragma unroll
        for (int m = 0; m < OutputGrid::MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = i0 + Place::row(m, 2 * half);
                if (i < i1) *ml_of(i) = make_float2(rows.m[m][half], rows.l[m][half]);
            }
    }

    // --- section 3.3: {warps split queries}, or {keys} ---

    // Queries [i0, i1) see the keys from j0 on (Algorithm 2, lines 9 to 15).
    __device__ __forceinline__ void step(State& state, const Scalar* tile_q, const Scalar* tile_k, const Scalar* tile_v,
                                         int i0, int i1, int j0) const {
        const Place place{i0 + ScoreGrid::row(), j0 + ScoreGrid::column()};
        const int end = smaller(place.i0 + ScoreGrid::MT * 16, i1);
        if (ways.split_queries && !seq.sees_any<config>(place.i0, end, j0, j0 + config.Bc)) return;
        Scores s;
        dot_products<M, kColumns, kPitch, kPitch>(s, tile_q + ScoreGrid::row() * kPitch,
                                                  tile_k + ScoreGrid::column() * kPitch);
        if (!seq.sees_all<config>(place.i0, end, place.j0, place.j0 + ScoreGrid::NT * 8))
            apply_band<config>(s, seq, place);
        if constexpr (ways.split_queries) {
            state.rows.template find_maximum<false>(s, factor);
            rescale(state);
            const auto sum = state.rows.exponentiate(s, factor);
            if constexpr (!ways.deferred)
                add_to_rows(state.rows, [&](int m, int half) {
                    // exponentiate has added this lane's share, and the other lanes' are missing
                    const float pair = sum.of[m][half] + __shfl_xor_sync(~0u, sum.of[m][half], 1);
                    return pair + __shfl_xor_sync(~0u, pair, 2) - sum.of[m][half];
                });
            M::template product_from_registers<kPitch>(state.o, M::left_of(s), tile_v, KeepAll{});
        } else {
            exchange.write_maxima(s);
            __syncthreads();  // all warps' maxima are there
            state.scores.template find_maximum<false>(exchange.template maxima_of<ScoreGrid::MT>(0), factor);
            state.rows.template find_maximum<false>(exchange.template maxima_of<OutputGrid::MT>(OutputGrid::row()),
                                                    factor);
            rescale(state);
            exchange.write_sums(state.scores.exponentiate(s, factor));
            const auto p = M::left_of(s);
            exchange.add_up(state.o, [&](int column, auto& part) {
                part.clear();
                M::template product_from_registers<kPitch>(part, p, tile_v + ScoreGrid::column() * kPitch + column,
                                                           KeepAll{});
            });
            add_to_rows(state.rows, [&](int m, int half) {
                const float sum = exchange.sum_of(OutputGrid::row() + Place::row(m, 2 * half));
                return !ways.deferred || lane_id() % 4 == 0 ? sum : 0.0f;
            });
        }
        if constexpr (!ways.deferred) normalize(state);
    }

    template <class Share>
    __device__ __forceinline__ static void add_to_rows(OwnRows& rows, Share share) {
#pragma unroll
        for (int m = 0; m < OutputGrid::MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) rows.l[m][half] += share(m, half);
    }

    // --- section 3.1: O is divided by l {at the end}, or {at every step} ---

    // O = diag(alpha) O, or diag(l alpha) O, for find_maximum has multiplied l by alpha.
    __device__ __forceinline__ void rescale(State& state) const {
        if constexpr (ways.deferred)
            state.rows.rescale(state.o);
        else
            multiply(state.o, [&](int m, int half) { return state.rows.l[m][half]; });
    }
    // O = diag(l)^-1 O. A row that has seen no key has l = 0.
    __device__ __forceinline__ void normalize(State& state) const {
        multiply(state.o, [&](int m, int half) {
            const float l = state.rows.l[m][half];
            return l == 0.0f ? 0.0f : 1.0f / l;
        });
    }
    template <class Factor>
    __device__ __forceinline__ static void multiply(Output& o, Factor of_row) {
#pragma unroll
        for (int m = 0; m < OutputGrid::MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float x = of_row(m, half);
#pragma unroll
                for (int n = 0; n < OutputGrid::NT; ++n)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) o.c[m][n][e] *= x;
            }
    }

    // O and LSE, which backward needs with `deferred`, else m and l. Q's tile has been read, and takes O.
    __device__ __forceinline__ void finish(State& state, Scalar* tile_q, int i0, int i1) const {
        const int own_i0 = i0 + OutputGrid::row(), own_i1 = smaller(own_i0 + OutputGrid::MT * 16, i1);
        if constexpr (ways.deferred) {
            state.rows.finish();
            normalize(state);
        } else {
            store_rows(state.rows, own_i0, i1);
        }
#pragma unroll
        for (int m = 0; m < OutputGrid::MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = own_i0 + Place::row(m, 2 * half);
                if (lane_id() % 4 == 0 && i < own_i1)
                    rows_of<float>(params.lse, seq.b, seq.h, 0)[i] =
                        state.rows.lse(m, half, natural_unit<config>(params));
            }
        if constexpr (ways.split_queries)
            __syncwarp();  // only this warp reads its rows of Q
        else
            __syncthreads();
        Scalar* buffer = tile_q + OutputGrid::row() * kPitch;
        write_fragments<config.element, kPitch>(state.o, buffer);
        __syncwarp();
        store_tile<Scalar, OutputGrid::MT * 16, config.head_dim, kPitch, 32, config.vector_bytes>(
            buffer, rows_of<Scalar>(params.out, seq.b, seq.h, own_i0), params.out.stride_row, own_i1 - own_i0,
            lane_id());
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one block of queries, of which a head's last comes first, or on one head.
template <KernelConfig config, WorkPartition ways>
__device__ __forceinline__ void flash_attention_1_forward(const KernelParams& params) {
    const HeadBlock own(ways.over_sequence ? params.seqlen_q : 1, ways.over_sequence ? config.Br : 1);
    const FlashAttention1Forward<config, ways> forward(params, own.of_queries<config>(params), shared_memory);
    if constexpr (ways.over_sequence)
        forward.run_queries(static_cast<int>(own.blocks - 1 - own.block()) * config.Br);
    else
        forward.run_head();
}

}  // namespace flashtile
