// kernels.h: what one instruction set offers to the CPU backend. Each .cpp file in kernels/ compiles forward.h and
// backward.h in its own namespace and binds them in one such table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.h"

namespace flashtile::cpu {

// One head's share of a call: rows [first, end) of queries (forward, D, dq), of keys (dk, dv) or of dbias.
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
    bool with_v = false;
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
};

struct Kernels {
    flashtile_isa isa;
    std::int64_t panel;        // queries side by side in two vectors
    std::int64_t key_block;    // Bc of the backward
    std::int64_t query_block;  // the least Br of the backward
    std::int64_t dq_rows;      // rows of dQ^T are padded to a multiple of this
    // How finely a pass is split, so that every thread has work. Forward makes at least `blocks_a_thread` blocks of
    // queries for each thread. Backward makes its tasks smaller until each thread has several, or until a task has
    // `fewest_keys` keys and each thread has two.
    std::int64_t blocks_a_thread;
    std::int64_t fewest_keys;

    std::int64_t (*forward_rows)(const Problem&, const Operands&);  // the most rows that a block of queries may have
    std::size_t (*forward_scratch)(const Problem&, std::int64_t rows);
    // `held` belongs to this call and this scratch.
    void (*forward)(const Problem&, const Operands&, const Block&, HeldKeys& held, std::byte* scratch);

    std::size_t (*backward_scratch)(const Problem&, std::int64_t keys);  // `keys`: of a task
    // D and lse of a block of queries; sets dq of its panels to zero.
    void (*backward_prepare)(const Problem&, const Operands&, const BackwardState&, const Block&, std::byte* scratch);
    // dk, dv of a block of keys, for every query head of the group; adds to dq in turn.
    void (*backward_keys)(const Problem&, const Operands&, const BackwardState&, const Block&, std::byte* scratch);
    // dq of a block of queries: from panels to rows of q's type.
    void (*backward_finish)(const Problem&, const Operands&, const BackwardState&, const Block&, std::byte* scratch);
    // dbias of rows [first, end) of its own shape, for its own (b, h).
    void (*backward_bias)(const Problem&, const Operands&, const BackwardState&, const Block&, std::byte* scratch);

    // Multiplies a fixed tile as problems of this dtype do. features.cpp times it.
    void (*probe)(DType);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_bf16_kernels();
const Kernels& amx_kernels();

}  // namespace flashtile::cpu
