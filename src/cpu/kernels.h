// kernels.h: what one instruction set offers to the CPU backend. Each .cpp file in kernels/ compiles forward.h and
// backward.h in its own namespace and binds them in one such table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/append_problem.h"
#include "core/merge_problem.h"
#include "core/problem.h"
#include "core/quantize_problem.h"
#include "cpu/quantize_blocks.h"

namespace flashtile::cpu {

// One head's share of a call: rows [first, end) of queries (forward, D, dq), of keys (dk, dv) or of dbias; for dsinks
// no rows count. For dtensors h is a part of all places, or a tensor.
struct Block {
    std::int64_t b;
    std::int64_t h;  // a query head; a key head for dk, dv; dbias's own
    std::int64_t first;
    std::int64_t end;
};

// What a thread's scratch still holds of the block that it worked on before: keys [first, end) of a key head, in the
// form that products read. The next block of the same head need not bring them there again.
struct alignas(64) HeldKeys {
    std::int64_t b = -1;
    std::int64_t kv_head = -1;
    std::int64_t first = 0;
    std::int64_t end = 0;
};

// What the passes of a backward share. Queries of a sequence start at a panel of their own, so a head has `panels`
// panels and at most `query_blocks` blocks of Br queries over all sequences.
struct BackwardState {
    float* lse;  // (heads, panels * panel), in softmax's units; +inf where a query sees no key or there is none
    float* D;    // likewise: rowsum(dO * O) - dlse
    float* dq;   // (heads, panels, dq_rows, panel)
    // turn[head, query block] counts the key blocks that have added to dq there. They add in ascending order, so the
    // sum has the same bits however threads interleave.
    std::uint32_t* turn;
    std::int64_t dq_rows;  // head_dim, up to a multiple of Kernels::dq_rows
    std::int64_t panels;
    std::int64_t query_blocks;
    std::int64_t key_block;  // keys of a task: some blocks of Bc, or part of one
    // What each of tensor_parts equal parts of all places adds to the gradients of named tensors: one tensor's elements
    // after the other's. The parts do not depend on the threads, and are added up in their order.
    double* tensor_sums;
    std::int64_t tensor_parts;
    std::int64_t tensor_elements;  // of a part
};

// The most rows, queries of a query head, that decode takes through keys together. Those of a range's key heads must be
// no more, unless it is one head.
constexpr std::int64_t kDecodeRows = 64;

// Splits [first, end) of the keys of a sequence and of some key heads; or of those that have few queries among
// sequences [b, end_b), which share these keys.
struct KeyRange {
    std::int64_t b, end_b;
    std::int64_t kv_head, end_kv_head;
    std::int64_t first, end;
};

// What the tasks of a decode store for the combine.
struct DecodeState {
    float* parts = nullptr;    // (slot, head, split) of Kernels::part_floats; null: a task has all splits of its rows
    std::int64_t splits = 1;   // that a row has room for
    std::int64_t queries = 0;  // slots of a sequence; 0: slots are the rows of q
    std::int64_t few = 0;      // queries that a sequence may have
};

// How the kernels of a set compute a problem, and why so; the texts are for people.
struct Choice {
    const char* arithmetic;  // what multiplies
    const char* why;
    std::int64_t tiles_from;        // keys from which on tiles win; 0: the set has none for this dtype
    std::int64_t backward_queries;  // Br of the backward
};

using BackwardKernel = void (*)(const Problem&, const Operands&, const BackwardState&, const Block&,
                                std::byte* scratch);

struct Kernels {
    flashtile_isa isa;
    std::int64_t panel;         // queries side by side in two vectors
    std::int64_t forward_keys;  // Bc of the forward
    std::int64_t key_block;     // Bc of the backward
    std::int64_t query_block;   // the least Br of the backward
    std::int64_t dq_rows;       // rows of dQ^T are padded to a multiple of this
    // How finely a pass is split, so that every thread has work. Forward makes at least `blocks_a_thread` blocks of
    // queries for each thread. Backward makes its tasks smaller until each thread has several, or until a task has
    // `fewest_keys` keys and each thread has two.
    std::int64_t blocks_a_thread;
    std::int64_t fewest_keys;

    Choice (*choice)(const Problem&);

    std::int64_t (*forward_rows)(const Problem&, const Operands&);  // the most rows that a block of queries may have
    std::size_t (*forward_scratch)(const Problem&, std::int64_t rows);
    // `held` belongs to this call and this scratch.
    void (*forward)(const Problem&, const Operands&, const Block&, HeldKeys& held, std::byte* scratch);

    // Forward of sequences with few queries: their number, from which on forward() is faster or which batch_invariant
    // asks for.
    std::int64_t (*decode_queries)(const Problem&);
    std::int64_t (*part_floats)(const Problem&);
    std::size_t (*decode_scratch)(const Problem&);
    void (*decode)(const Problem&, const Operands&, const DecodeState&, const KeyRange&, std::byte* scratch);
    // Finishes the rows of a query head (b, h) from their stored parts.
    void (*combine)(const Problem&, const Operands&, const DecodeState&, std::int64_t b, std::int64_t h,
                    std::byte* scratch);

    std::size_t (*backward_scratch)(const Problem&, std::int64_t keys);  // `keys`: of a task
    // D and lse of a block of queries; sets dq of its panels to zero.
    BackwardKernel backward_prepare;
    // dk, dv of a block of keys, for every query head of the group; adds to dq in turn.
    BackwardKernel backward_keys;
    // dq of a block of queries: from panels to rows of q's type.
    BackwardKernel backward_finish;
    // dsinks of one head.
    BackwardKernel backward_sinks;
    // dbias of rows [first, end) of its own shape, for its own (b, h).
    BackwardKernel backward_bias;
    // What a part of all places adds to dtensors; then one of dtensors from all parts.
    std::size_t (*tensor_scratch)(const Problem&);
    BackwardKernel backward_tensors;
    BackwardKernel finish_tensor;

    // Rows [first, end) of a merge's out, counted over (batch, seqlen, heads).
    void (*merge)(const MergeProblem&, const MergeOperands&, std::int64_t first, std::int64_t end);

    // Items [first, end) of an append.
    void (*append_kv)(const AppendProblem&, const AppendOperands&, std::int64_t first, std::int64_t end);

    // A block of a quantisation: what is to be quantised, to rows of fp32, with its largest finite magnitude; these to
    // e4m3; and e4m3 to x.
    float (*quantize_prepare)(const QuantizeProblem&, const QuantizeOperands&, const QuantizeBlock&, float* rows);
    void (*quantize_store)(const QuantizeProblem&, const QuantizeOperands&, const QuantizeBlock&, const float* rows,
                           float scale);
    void (*dequantize)(const QuantizeProblem&, const QuantizeOperands&, const QuantizeBlock&, float scale);

    // Multiplies a fixed tile as problems of this dtype do. features.cpp times it.
    void (*probe)(DType);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_bf16_kernels();
Kernels with_byte_tables(const Kernels& avx512_bf16);  // of a CPU that has VBMI beside that set
const Kernels& amx_kernels();
const Kernels& neon_bf16_kernels();

}  // namespace flashtile::cpu
