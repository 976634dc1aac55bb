// bind.h: one instruction set's table of kernels. Each .cpp file in this folder includes it and names the table.
#pragma once

#include "cpu/kernels/append_kv.h"
#include "cpu/kernels/backward.h"
#include "cpu/kernels/backward_bias.h"
#include "cpu/kernels/backward_sinks.h"
#include "cpu/kernels/backward_tensors.h"
#include "cpu/kernels/bind_decode.h"
#include "cpu/kernels/forward.h"
#include "cpu/kernels/merge.h"
#include "cpu/kernels/quantize.h"
#include "cpu/kernels/tile_choice.h"
#if defined(FLASHTILE_TILES)
#include "cpu/kernels/tile_pipeline.h"
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Which arithmetic a problem gets: tiles where this unit has them.
template <class F>
inline auto with_math(const Problem& p, F f) {
#if defined(FLASHTILE_TILES)
    if (p.dtype_of_k() == DType::bf16 && tiles_win(p)) return f(TileMath{});
    if (p.dtype_of_k() == DType::fp16 && tiles_win(p)) return f(SplitTileMath{});
#endif
    return with_vectors(p.dtype_of_k(), f);
}

// How rows of k or v lie. A plan reads no memory: not the lists that say where.
inline KeyRows form_of(const Problem& p, const Operands& x, const Operand& keys) {
    const Rows rows = rows_of(keys, 0, 0, 0);
    if (x.block_table == nullptr) return KeyRows(rows);
    return KeyRows(rows, x.block_table, p.page_size, keys.stride_batch, x.block_table, 0);
}

inline int64_t forward_rows(const Problem& p, const Operands& x) {
    return with_math(
        p, [&]<class Math>(Math) { return Forward<Math>::most_rows(p, form_of(p, x, x.k), form_of(p, x, x.v)); });
}

inline std::size_t forward_scratch(const Problem& p, int64_t rows) {
    return with_math(p, [&]<class Math>(Math) { return Forward<Math>::scratch_bytes(p, rows); });
}

inline void forward(const Problem& p, const Operands& x, const cpu::Block& block, cpu::HeldKeys& held,
                    std::byte* scratch) {
    const int64_t kv_head = block.h / p.group();
    if (held.b != block.b || held.kv_head != kv_head) held = {block.b, kv_head};
    with_math(p, [&]<class Math>(Math) {
        const typename Math::Session session;
        const Head head = make_head(p, x, block.b, block.h);
        const int64_t end = lesser(block.end, head.seqlen_q);  // seqused_q may say less than the schedule knows
        if (block.first < end) Forward<Math>(p, head, &held, scratch).run(block.first, end);
    });
}

// Which way of computing dk and dv a problem gets.
template <class F>
inline auto with_backward_keys(const Problem& p, F f) {
    return with_math(p, [&]<class Math>(Math) {
        if constexpr (Math::kTiles && Math::kParts == 1)
            if (many_backward_queries(p))
                return f.template operator()<Math, BackwardKeys<Math, kManyBackwardQueries>>();
        return f.template operator()<Math, BackwardKeys<Math, kBackwardQueries>>();
    });
}

// What with_math and with_backward_keys pick, in words. Cold, or GCC would inline other things in the kernels.
[[gnu::cold]] inline cpu::Choice choice(const Problem& p) {
    cpu::Choice made{};
    if (p.has_e4m3() && p.seqlen_q <= decode_queries(p)) {
        with_decode_math(p, [&]<class Math>(Math) {
            made.arithmetic = Math::kPack == 2 ? "bf16 pairs" : "fp32 vectors";
            made.why = Math::kPack == 2 ? "bf16 has all of e4m3's numbers" : "e4m3 is widened";
        });
        return made;
    }
    with_backward_keys(p, [&]<class Math, class Keys>() {
        made.backward_queries = Keys::kQueries;
        if constexpr (Math::kTiles)
            made.arithmetic = Math::kParts == 1 ? "bf16 tiles" : "bf16 tiles, two for each tile of fp16";
        else
            made.arithmetic = Math::kPack == 2 ? "bf16 pairs" : "fp32 vectors";
        made.why = Math::kPack == 2         ? "the instruction set has a dot product of bf16"
                   : p.dtype == DType::fp32 ? "the inputs' type"
                   : p.has_e4m3()           ? "e4m3 is widened"
                                            : "16-bit inputs are widened";
    });
#if defined(FLASHTILE_TILES)
    if (p.dtype == DType::fp32 || p.has_e4m3()) return made;
    made.tiles_from = tiles_from(p);
    made.why = p.batch_invariant ? "batch_invariant takes tiles for any number of keys"
               : tiles_win(p)    ? "enough keys for tiles"
                                 : "faster than tiles for so few keys";
#endif
    return made;
}

inline int64_t query_row_floats(const Problem& p) {
    const int64_t widest = p.head_dim > p.head_dim_v ? p.head_dim : p.head_dim_v;
    return kLanes * round_up(widest, kLanes);
}

inline std::size_t backward_scratch(const Problem& p, int64_t task_keys) {
    return with_backward_keys(p, [&]<class Math, class Keys>() {
        const std::size_t keys = Keys::scratch_bytes(p, task_keys);
        const std::size_t bias = BackwardBias<Math>::scratch_bytes(p);
        const std::size_t rows = static_cast<std::size_t>(query_row_floats(p)) * sizeof(float);
        const std::size_t most = keys > bias ? keys : bias;
        return most > rows ? most : rows;
    });
}

inline void backward_prepare(const Problem& p, const Operands& x, const cpu::BackwardState& state,
                             const cpu::Block& block, std::byte* scratch) {
    prepare_queries(p, make_head(p, x, block.b, block.h), state, block.h, block.first, block.end,
                    reinterpret_cast<float*>(scratch));
}

inline void backward_keys(const Problem& p, const Operands& x, const cpu::BackwardState& state, const cpu::Block& block,
                          std::byte* scratch) {
    with_backward_keys(p, [&]<class Math, class Keys>() {
        const typename Math::Session session;
        Keys(p, x, state, scratch).run(block.b, block.h, block.first, block.end);
    });
}

inline void backward_finish(const Problem& p, const Operands& x, const cpu::BackwardState& state,
                            const cpu::Block& block, std::byte* scratch) {
    finish_queries(p, make_head(p, x, block.b, block.h), state, block.h, block.first, block.end,
                   reinterpret_cast<float*>(scratch));
}

inline void backward_sinks(const Problem& p, const Operands& x, const cpu::BackwardState& state,
                           const cpu::Block& block, std::byte*) {
    sum_dsink(p, x, state, block.h);
}

inline void backward_bias(const Problem& p, const Operands& x, const cpu::BackwardState& state, const cpu::Block& block,
                          std::byte* scratch) {
    with_math(p, [&]<class Math>(Math) {
        const typename Math::Session session;
        BackwardBias<Math>(p, x, state, scratch).run(block.b, block.h, block.first, block.end);
    });
}

inline std::size_t tensor_scratch(const Problem& p) {
    return with_math(p, [&]<class Math>(Math) { return BackwardTensors<Math>::scratch_bytes(p); });
}

inline void backward_tensors(const Problem& p, const Operands& x, const cpu::BackwardState& state,
                             const cpu::Block& block, std::byte* scratch) {
    with_math(p, [&]<class Math>(Math) {
        const typename Math::Session session;
        BackwardTensors<Math>(p, x, state, scratch).run(block.h);
    });
}

inline void finish_tensor(const Problem&, const Operands& x, const cpu::BackwardState& state, const cpu::Block& block,
                          std::byte*) {
    sum_tensor_parts(x, state, block.h);
}

inline void probe(DType dtype) {
    with_vectors(dtype, [&]<class Math>(Math) {
        constexpr int64_t kKeys = 64, kSteps = 64;  // both operands stay in the level-1 cache
        alignas(64) typename Math::Scalar a[kKeys * kSteps / Math::kPack] = {};
        alignas(64) typename Math::Scalar b[kSteps / Math::kPack * kPanel] = {};
        alignas(64) float c[kKeys * kPanel];
        for (int repeat = 0; repeat < 8; ++repeat)
            product<Math>(
                a, kSteps / Math::kPack, 1, b, kPanel, kKeys, kSteps / Math::kPack, [](int64_t, int) { return Vec{}; },
                [&](int64_t r, Vec c0, Vec c1) {
                    store(c + r * kPanel, c0);
                    store(c + r * kPanel + kLanes, c1);
                });
        asm volatile("" : : "r"(c) : "memory");
    });
}

// With tiles, threads differ most in speed where two share a core, so forward gets more blocks for each. Backward's
// tasks are not made smaller than a block of keys: what a task does to all queries then takes longer than its products.
// Rows of dQ^T come in whole tiles.
#if defined(FLASHTILE_TILES)
constexpr int64_t kDqRows = kTileRows, kBlocksAThread = 8, kFewestKeys = kBackwardKeys;
#else
constexpr int64_t kDqRows = 1, kBlocksAThread = 4, kFewestKeys = 32;
#endif

constexpr cpu::Kernels make_kernels(flashtile_isa isa) {
    return {isa,
            kPanel,
            kForwardKeys,
            kBackwardKeys,
            kBackwardQueries,
            kDqRows,
            kBlocksAThread,
            kFewestKeys,
            choice,
            forward_rows,
            forward_scratch,
            forward,
            decode_queries,
            part_floats,
            decode_scratch,
            decode,
            combine,
            backward_scratch,
            backward_prepare,
            backward_keys,
            backward_finish,
            backward_sinks,
            backward_bias,
            tensor_scratch,
            backward_tensors,
            finish_tensor,
            merge,
            append_kv,
            quantize_prepare,
            quantize_store,
            dequantize,
            probe};
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
