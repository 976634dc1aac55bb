// problem.h: the validated problem, free of any framework: what every backend plans from and runs. A Problem holds
// sizes and options and no pointer, so it can be printed, compared and used as a key; Operands holds the memory.
#pragma once

#include <cstdint>
#include <string>

#include "flashtile/flashtile.h"

namespace flashtile {

enum class DType : std::int32_t {
    unset = FLASHTILE_DTYPE_UNSET,
    fp32 = FLASHTILE_FP32,
    fp16 = FLASHTILE_FP16,
    bf16 = FLASHTILE_BF16,
    fp8_e4m3 = FLASHTILE_FP8_E4M3,
    boolean = FLASHTILE_BOOL,
    int32 = FLASHTILE_INT32,
    int64 = FLASHTILE_INT64,
};

const char* name(DType dtype);
std::int64_t size_of(DType dtype);

struct Problem {
    DType dtype = DType::unset;
    std::int64_t batch = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t seqlen_q = 0;  // the longest, when packed
    std::int64_t seqlen_k = 0;
    std::int64_t head_dim = 0;
    std::int64_t head_dim_v = 0;
    bool packed = false;
    std::int64_t total_q = 0;  // rows of q and of k, when packed
    std::int64_t total_k = 0;

    float scale = 0.0f;
    float softcap = 0.0f;  // 0: off
    // The band of mask.h: causal is window_right = 0; -1 is open. `top_left` says which corner the diagonal leaves
    // from; `diagonal` is added to it.
    bool top_left = false;
    std::int64_t window_left = -1;
    std::int64_t window_right = -1;
    std::int64_t diagonal = 0;
    // Where (b, h, i, j) = (0, 0, 0, 0) of this problem lies in the whole: a shard of a problem is the same problem,
    // shifted. Dropout draws by the whole's coordinates.
    std::int64_t origin_b = 0;
    std::int64_t origin_h = 0;
    std::int64_t origin_i = 0;
    std::int64_t origin_j = 0;

    bool alibi = false;
    DType bias = DType::unset;  // unset: none
    bool mask = false;
    std::uint32_t dropout_threshold = 0;  // round(65536 p); 0: off
    bool deterministic = false;
    bool batch_invariant = false;
    bool exact_max = false;  // no maximum lags, and no gradient is made of a P that was rounded

    std::int64_t group() const { return heads / kv_heads; }  // query heads that share a key head
    // As they lie in memory: runs of rows, and how many; a packed batch is one run.
    std::int64_t rows_q() const { return packed ? total_q : seqlen_q; }
    std::int64_t rows_k() const { return packed ? total_k : seqlen_k; }
    std::int64_t runs() const { return packed ? 1 : batch; }
    // Units of `rows` queries in a head: room enough for every sequence to start at a unit of its own.
    std::int64_t units(std::int64_t rows) const { return rows_q() * runs() / rows + batch; }
    bool operator==(const Problem&) const = default;
};

std::string to_string(const Problem& problem);

// Where one operand lies. Strides are in elements; a broadcast dimension has stride 0; the column stride is 1 or 0.
// Packed operands have no batch stride: rows are counted from the sequence's start.
struct Operand {
    void* data = nullptr;
    DType dtype = DType::unset;
    std::int64_t stride_batch = 0;
    std::int64_t stride_row = 0;
    std::int64_t stride_head = 0;
    std::int64_t stride_col = 1;

    explicit operator bool() const { return data != nullptr; }
};

// Lengths that may lie in memory as int32 or int64.
struct Lengths {
    const void* data = nullptr;
    bool wide = false;

    explicit operator bool() const { return data != nullptr; }
    std::int64_t operator[](std::int64_t n) const {
        return wide ? static_cast<const std::int64_t*>(data)[n] : static_cast<const std::int32_t*>(data)[n];
    }
};

struct Operands {
    Operand q, k, v, out;
    Operand lse;     // rows are queries, columns unused
    Operand slopes;  // ALiBi: batch and head strides only
    Operand bias, mask;
    Lengths cu_seqlens_q, cu_seqlens_k, seqused_k;
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    const std::uint64_t* seed_ptr = nullptr;
    const std::uint64_t* offset_ptr = nullptr;

    // backward
    Operand dout, dq, dk, dv;
    Operand dlse;
    Operand dbias;
    std::int64_t bias_batch = 1, bias_heads = 1, bias_rows = 1, bias_cols = 1;  // the shape that dbias sums to
};

// How to run: nothing here changes a result's meaning.
struct Execution {
    std::int32_t device_type = FLASHTILE_CPU;
    std::int32_t device_id = 0;
    std::int32_t threads = 0;
    flashtile_isa isa = FLASHTILE_ISA_AUTO;
    const flashtile_executor* executor = nullptr;
    void* stream = nullptr;
    void* workspace = nullptr;
    std::size_t workspace_size = 0;
    bool check_values = false;
};

}  // namespace flashtile
