// problem.h: a validated call, in three structs that every backend plans from and runs. Problem holds sizes and options
// and no pointer, so it can be printed, compared and used as a key. Operands says where the tensors lie. Execution says
// how to run.
#pragma once

#include <cstdint>
#include <string>

#include "core/append_problem.h"
#include "core/operand.h"
#include "flashtile/flashtile.h"
#include "functions/program.h"

namespace flashtile {

struct Problem {
    DType dtype = DType::unset;      // q's
    DType kv_dtype = DType::unset;   // k's and v's, where it is another: e4m3 beside a 16-bit q; unset: q's
    DType out_dtype = DType::unset;  // out's, where it is another; unset: q's
    // Of e4m3 tensors; blocks have `scale_block` rows, 0 where there are none.
    ScaleKind q_scale = ScaleKind::none, k_scale = ScaleKind::none, v_scale = ScaleKind::none;
    std::int64_t scale_block = 0;
    std::int64_t batch = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t seqlen_q = 0;  // of the longest sequence, if packed
    std::int64_t seqlen_k = 0;
    std::int64_t head_dim = 0;
    std::int64_t head_dim_v = 0;
    bool packed = false;
    std::int64_t total_q = 0;  // rows of q and of k, if packed
    std::int64_t total_k = 0;
    // Keys and values are a cache: `pages` pages, or without a page_size so many rows of seqlen_k keys. Sequences name
    // what they use of it. `packed` then speaks of queries only.
    bool cache = false;
    std::int64_t pages = 0;
    std::int64_t page_size = 0;
    std::int64_t max_pages = 0;  // that a sequence can name
    bool first_k = false;        // there are lists of these
    bool used_q = false;
    std::int64_t prefix_groups = 0;  // groups of sequences that share their first keys
    // New keys are appended to the cache first. Sequences then have the keys that their lengths say, and the new ones.
    bool appends = false;
    bool rotates_q_aside = false;  // and queries are rotated, to memory of the call's own
    AppendProblem append{};

    float scale = 0.0f;
    float softcap = 0.0f;  // 0: off
    // The band of mask.h: causal is window_right = 0, and -1 is open. The diagonal starts at the top left corner if
    // `top_left` is set and ends at the bottom right one otherwise. `diagonal` shifts it.
    bool top_left = false;
    std::int64_t window_left = -1;
    std::int64_t window_right = -1;
    std::int64_t diagonal = 0;
    // Where (b, h, i, j) = (0, 0, 0, 0) of this problem lies in the whole problem, if this one is a shard of it.
    // Dropout draws by the coordinates of the whole.
    std::int64_t origin_b = 0;
    std::int64_t origin_h = 0;
    std::int64_t origin_i = 0;
    std::int64_t origin_j = 0;
    // Sequences have diagonals, and origins of i and of j, of their own, in memory. The one above is then 0.
    bool diagonals = false;
    bool origins_i = false;
    bool origins_j = false;

    std::int64_t attention_chunk = 0;  // 0: off

    bool alibi = false;
    DType bias = DType::unset;  // unset: none
    bool mask = false;
    bool tree_mask = false;
    bool positions = false;
    std::int32_t functions = 0;  // a number of functions/functions.h; 0: none
    // The user's lists of blocks; block_q is 0 without them. Sequences and heads have lists each, or one for all.
    std::int64_t block_q = 0, block_k = 0, list_batch = 1, list_heads = 1;
    DType sinks = DType::unset;           // unset: none
    std::int32_t num_splits = 0;          // 0: the backend's rule
    std::uint32_t dropout_threshold = 0;  // round(65536 p); 0: off
    bool deterministic = false;
    bool batch_invariant = false;
    bool exact_max = false;     // the running maximum is exact, and gradients use a P that is not rounded to 16 bits
    std::int32_t sm_limit = 0;  // multiprocessors of a GPU; 0: all

    DType dtype_of_k() const { return kv_dtype == DType::unset ? dtype : kv_dtype; }
    DType dtype_of_out() const { return out_dtype == DType::unset ? dtype : out_dtype; }
    // Whether k and v are e4m3, if not q as well. Such calls from the CPU's kernels are always inlined: a copy in an
    // instruction set's object could become everybody's.
    [[gnu::always_inline]] bool has_e4m3() const { return dtype_of_k() == DType::fp8_e4m3; }
    std::int64_t group() const { return heads / kv_heads; }  // how many query heads share a key head
    // Rows as they lie in memory: runs() runs of rows_q() or rows_k() rows each. A packed batch is one run.
    std::int64_t rows_q() const { return packed ? total_q : seqlen_q; }
    std::int64_t rows_k() const { return packed && !cache ? total_k : seqlen_k; }
    std::int64_t runs() const { return packed ? 1 : batch; }
    // How many units of `rows` queries a head needs, so that every sequence can start at a new unit.
    std::int64_t units(std::int64_t rows) const { return rows_q() * runs() / rows + batch; }
    // Blocks of the user's lists, of the longest sequence.
    [[gnu::always_inline]] std::int64_t query_blocks() const { return (seqlen_q + block_q - 1) / block_q; }
    [[gnu::always_inline]] std::int64_t key_blocks() const { return (seqlen_k + block_k - 1) / block_k; }
    bool operator==(const Problem&) const = default;
};

std::string to_string(const Problem& problem);

// One of the user's two lists of blocks: how many blocks of keys each block of queries names, and which.
struct BlockList {
    const std::int32_t* counts = nullptr;  // null: it is not given
    const std::int32_t* indices = nullptr;
    std::int64_t room = 0;                                    // for indices of a block of queries
    std::int64_t count_stride[3] = {}, index_stride[4] = {};  // of sequences, heads, blocks of queries; of entries

    std::int64_t count_at(std::int64_t b, std::int64_t h, std::int64_t row) const {
        return b * count_stride[0] + h * count_stride[1] + row * count_stride[2];
    }
    std::int64_t index_at(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t n) const {
        return b * index_stride[0] + h * index_stride[1] + row * index_stride[2] + n * index_stride[3];
    }
};

struct Operands {
    Operand q, k, v, out;
    Scales q_scale, k_scale, v_scale;
    Operand lse;     // rows are queries; columns are not used
    Operand slopes;  // of ALiBi; only the strides of batch and heads are used
    Operand bias, mask;
    Operand tree_mask;
    Operand sinks;  // only the stride of heads is used
    Lengths cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, first_k;
    Lengths cache_batch_idx;
    const std::int32_t* block_table = nullptr;
    std::int64_t block_table_stride = 0;
    Lengths prefix_groups, prefix_lengths;
    const std::int32_t* positions = nullptr;  // of queries
    std::int64_t positions_stride = 0;        // of sequences, unless packed
    AppendOperands append{};                  // q_out has no memory where Problem::rotates_q_aside
    const std::int64_t* diagonals = nullptr;  // one a sequence
    const std::int64_t* origins_i = nullptr;
    const std::int64_t* origins_j = nullptr;
    functions::FunctionTensor function_tensors[functions::kMostTensors] = {};
    BlockList partial_blocks, full_blocks;
    const unsigned char* block_kinds = nullptr;  // what a CPU's call has made of them: cpu/block_kinds.h
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    const std::uint64_t* seed_ptr = nullptr;
    const std::uint64_t* offset_ptr = nullptr;

    // backward
    Operand dout, dq, dk, dv;
    Operand dlse;
    Operand dbias;
    Operand dsinks;
    functions::TensorGradient dtensors[functions::kMostTensors] = {};           // of function_tensors
    std::int64_t bias_batch = 1, bias_heads = 1, bias_rows = 1, bias_cols = 1;  // the shape of dbias
};

// How to run. Nothing here changes what a result means.
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
