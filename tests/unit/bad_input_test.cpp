// bad_input_test.cpp: every wrong argument is refused before anything is written, with a message that names the
// argument and its value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "unit/call.h"

namespace flashtile::unit {
namespace {

using conformance::Case;

Case dense() {
    Case c;
    c.batch = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = 5;
    c.seqlen_k = 7;
    c.head_dim = 8;
    c.head_dim_v = 6;
    c.slopes = conformance::Slopes::per_head;
    c.bias.present = c.mask.present = true;
    c.with_dlse = true;
    c.used_k = {7, 3};
    return c;
}

Case packed() {
    Case c = dense();
    c.lengths_q = {5, 2};
    c.lengths_k = {7, 4};
    c.used_k = {};
    return c;
}

Case paged() {
    Case c = dense();
    c.bias.present = c.mask.present = false;
    c.cache = {.present = true, .page_size = 4, .groups = {0, 2}, .prefixes = {2}};
    c.first_k = {1, 0};
    c.used_q = {5, 2};
    c.tree = c.positions = true;
    c.sinks = conformance::Sinks::in_fp32;
    return c;
}

Case cache_rows() {
    Case c = paged();
    c.cache = {.present = true};
    c.type = bf16;
    return c;
}

Case packed_paged() {
    Case c = packed();
    c.bias.present = c.mask.present = false;
    c.cache = {.present = true, .page_size = 4};
    return c;
}

Case e4m3() {
    Case c = dense();
    using conformance::Scaling;
    c.e4m3 = {.present = true, .q = Scaling::blocks, .k = Scaling::blocks, .v = Scaling::blocks};
    return c;
}

Case packed_e4m3() {
    Case c = packed();
    c.e4m3 = e4m3().e4m3;
    return c;
}

Case paged_e4m3() {
    Case c = paged();
    c.e4m3 = e4m3().e4m3;
    return c;
}

Case with_sinks() {
    Case c = dense();
    c.sinks = conformance::Sinks::in_fp32;
    return c;
}

Case shards() {
    Case c = dense();
    c.chunk = 16;
    c.dropout = 0.5;
    c.diagonals = {3, -5};
    c.origins_i = {0, 7};
    c.origins_j = {32, 0};
    return c;
}

enum class Pass { both, forward, backward };

struct Wrong {
    const char* name;
    void (*spoil)(Call&);
    std::vector<std::string> named;  // what the message must contain
    Pass pass = Pass::both;
    Case (*base)() = dense;
    flashtile_status status = FLASHTILE_INVALID_ARGUMENT;
};

// gtest prints the name of a parameter, not its bytes.
void PrintTo(const Wrong& wrong, std::ostream* out) {
    *out << wrong.name;
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

// A multiple of 64 bytes, as workspaces must be, whose 64 bytes hold `data`.
void* line_of(void* data) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) & ~std::uintptr_t{63});
}

template <class T>
T& element(const flashtile_tensor& t, int n) {
    return static_cast<T*>(t.data)[n];
}

const std::vector<Wrong>& wrong_calls() {
    static const std::vector<Wrong> calls = {
        // tensors
        {"q_null", [](Call& c) { c.inputs.q = nullptr; }, {"q", "NULL"}},
        {"k_null", [](Call& c) { c.inputs.k = nullptr; }, {"k", "NULL"}},
        {"v_null", [](Call& c) { c.inputs.v = nullptr; }, {"v", "NULL"}},
        {"q_data_null", [](Call& c) { c.q.data = nullptr; }, {"q", "NULL"}},
        {"out_null", [](Call& c) { c.outputs.out = nullptr; }, {"out", "NULL"}, Pass::forward},
        {"out_data_null", [](Call& c) { c.out.data = nullptr; }, {"out", "NULL"}},
        {"dout_null", [](Call& c) { c.gradients.dout = nullptr; }, {"dout", "NULL"}, Pass::backward},
        {"lse_null", [](Call& c) { c.gradients.lse = nullptr; }, {"lse", "NULL"}, Pass::backward},
        {"dq_null", [](Call& c) { c.gradients.dq = nullptr; }, {"dq", "NULL"}, Pass::backward},
        {"dk_null", [](Call& c) { c.gradients.dk = nullptr; }, {"dk", "NULL"}, Pass::backward},
        {"dv_null", [](Call& c) { c.gradients.dv = nullptr; }, {"dv", "NULL"}, Pass::backward},
        {"q_rank", [](Call& c) { c.q.rank = 3; }, {"q.rank", "3"}},
        {"q_rank_past_the_most", [](Call& c) { c.q.rank = 7; }, {"q.rank", "7"}},
        {"q_rank_negative", [](Call& c) { c.q.rank = -1; }, {"q.rank", "-1"}},
        {"k_batch", [](Call& c) { c.k.shape[0] = 3; }, {"k.shape", "3"}},
        {"k_head_dim", [](Call& c) { c.k.shape[3] = 7; }, {"k.shape", "7"}},
        {"v_length", [](Call& c) { c.v.shape[1] = 6; }, {"v.shape", "6"}},
        {"out_shape", [](Call& c) { c.out.shape[3] = 5; }, {"out.shape", "5"}},
        {"lse_shape", [](Call& c) { c.lse.shape[2] = 4; }, {"lse.shape", "4"}},
        {"dq_shape", [](Call& c) { c.dq.shape[1] = 4; }, {"dq.shape", "4"}, Pass::backward},
        {"dlse_shape", [](Call& c) { c.dlse.shape[1] = 3; }, {"dlse.shape", "3"}, Pass::backward},
        {"negative_size", [](Call& c) { c.q.shape[1] = -5; }, {"q.shape", "-5"}},
        {"heads_no_multiple", [](Call& c) { c.k.shape[2] = c.v.shape[2] = 3; }, {"heads", "3"}},
        {"no_kv_heads", [](Call& c) { c.k.shape[2] = c.v.shape[2] = 0; }, {"heads", "0"}},
        {"head_dim_zero", [](Call& c) { c.q.shape[3] = c.k.shape[3] = 0; }, {"head_dim", "0"}},
        {"q_dtype_unset", [](Call& c) { c.q.dtype = FLASHTILE_DTYPE_UNSET; }, {"q.dtype"}},
        {"q_dtype_unknown", [](Call& c) { c.q.dtype = 99; }, {"q.dtype", "99"}},
        {"q_dtype_bool", [](Call& c) { c.q.dtype = c.k.dtype = c.v.dtype = FLASHTILE_BOOL; }, {"q.dtype", "bool"}},
        {"backward_of_fp8",
         [](Call& c) { c.q.dtype = c.k.dtype = c.v.dtype = FLASHTILE_FP8_E4M3; },
         {"k.dtype is fp8_e4m3", "backward runs in bf16", "flashtile_dequantize"},
         Pass::backward,
         dense,
         FLASHTILE_UNSUPPORTED},
        {"fp8_keys_beside_fp32",
         [](Call& c) { c.k.dtype = c.v.dtype = FLASHTILE_FP8_E4M3; },
         {"k.dtype is fp8_e4m3", "fp32, that of q"}},
        {"fp8_queries_beside_others", [](Call& c) { c.q.dtype = FLASHTILE_FP8_E4M3; }, {"k.dtype is fp32", "fp8_e4m3, that of q"}},
        {"v_of_another_type", [](Call& c) { c.v.dtype = FLASHTILE_FP16; }, {"v.dtype is fp16", "that of k"},
         Pass::forward, e4m3},
        {"out_of_fp8", [](Call& c) { c.out.dtype = FLASHTILE_FP8_E4M3; }, {"out.dtype is fp8_e4m3", "fp32, fp16 or bf16"},
         Pass::forward, e4m3},
        {"bias_of_fp8", [](Call& c) { c.bias.dtype = FLASHTILE_FP8_E4M3; }, {"bias.dtype is fp8_e4m3", "fp32"},
         Pass::forward, e4m3},
        {"scale_beside_fp32", [](Call& c) { c.inputs.k_scale = &c.slopes; },
         {"k_scale is given beside fp32 elements", "NULL"}, Pass::forward},
        {"scale_of_fp16", [](Call& c) { c.q_scale.dtype = FLASHTILE_FP16; }, {"q_scale.dtype is fp16", "fp32"},
         Pass::forward, e4m3},
        {"scale_block_of_32", [](Call& c) { c.inputs.scale_block = 32; }, {"scale_block is 32", "0, 64 or 128"},
         Pass::forward, e4m3},
        {"scale_block_of_nothing", [](Call& c) { c.inputs.q_scale = c.inputs.k_scale = c.inputs.v_scale = nullptr; },
         {"scale_block is 64", "0, since no scale is for a block"}, Pass::forward, e4m3},
        {"block_scales_without_block", [](Call& c) { c.inputs.scale_block = 0; },
         {"q_scale.shape is (2, 4, 1)", "(batch, kv_heads), without scale_block = (2, 2)"}, Pass::forward, e4m3},
        {"scale_blocks", [](Call& c) { c.k_scale.shape[2] = 2; }, {"k_scale.shape is (2, 2, 2)", "= (2, 2, 1)"},
         Pass::forward, e4m3},
        {"scale_heads", [](Call& c) { c.v_scale.shape[1] = 4; }, {"v_scale.shape is (2, 4, 1)", "= (2, 2, 1)"},
         Pass::forward, e4m3},
        {"scale_rank", [](Call& c) { c.v_scale.rank = 2; }, {"v_scale.rank is 2", "3: (batch, heads, blocks)"},
         Pass::forward, e4m3},
        {"too_few_packed_scales", [](Call& c) { c.k_scale.shape[1] = 1; },
         {"k_scale.shape is 1 blocks of a head", "at least 2"}, Pass::forward, packed_e4m3},
        {"scales_of_pages", [](Call& c) { c.k_scale.shape[0] -= 1; }, {"k_scale.shape is"}, Pass::forward, paged_e4m3},
        {"out_over_scales", [](Call& c) { c.out.data = c.q_scale.data; }, {"out is overlapping q_scale"}, Pass::forward,
         e4m3},
        {"k_dtype", [](Call& c) { c.k.dtype = FLASHTILE_BF16; }, {"k.dtype", "bf16"}},
        {"out_dtype", [](Call& c) { c.out.dtype = FLASHTILE_FP16; }, {"out.dtype", "fp16"}},
        {"lse_dtype", [](Call& c) { c.lse.dtype = FLASHTILE_FP16; }, {"lse.dtype", "fp16"}},
        {"bias_dtype", [](Call& c) { c.bias.dtype = FLASHTILE_BF16; }, {"bias.dtype", "bf16"}},
        {"dbias_dtype", [](Call& c) { c.dbias.dtype = FLASHTILE_BF16; }, {"dbias.dtype", "bf16"}, Pass::backward},
        {"mask_dtype", [](Call& c) { c.mask.dtype = FLASHTILE_INT32; }, {"mask.dtype", "int32"}},
        {"slopes_dtype", [](Call& c) { c.slopes.dtype = FLASHTILE_BF16; }, {"alibi_slopes.dtype", "bf16"}},
        {"q_innermost_stride", [](Call& c) { c.q.stride[3] = 2; }, {"q.stride", "2"}},
        {"out_innermost_stride", [](Call& c) { c.out.stride[3] = 3; }, {"out.stride", "3"}},
        {"q_negative_stride", [](Call& c) { c.q.stride[1] = -32; }, {"q.stride", "-32"}},
        {"misaligned", [](Call& c) { c.k.data = static_cast<char*>(c.k.data) + 1; }, {"k.data"}},
        {"bias_shape", [](Call& c) { c.bias.shape[3] = 2; }, {"bias.shape", "2"}},
        {"bias_rank", [](Call& c) { c.bias.rank = 5; }, {"bias"}},
        {"mask_shape", [](Call& c) { c.mask.shape[1] = 3; }, {"mask.shape", "3"}},
        {"slopes_shape", [](Call& c) { c.slopes.shape[0] = 3; }, {"alibi_slopes.shape", "3"}},
        {"dbias_without_bias", [](Call& c) { c.inputs.bias = nullptr; }, {"dbias", "bias"}, Pass::backward},
        {"dbias_shape", [](Call& c) { c.dbias.shape[0] = 1; }, {"dbias.shape", "1"}, Pass::backward},
        {"overflowing_size", [](Call& c) { c.q.shape[0] = c.q.shape[1] = kHuge; }, {"q.shape"}},
        {"overflowing_stride", [](Call& c) { c.q.stride[0] = kHuge; }, {"q.shape"}},
        {"other_device", [](Call& c) { c.k.device_type = FLASHTILE_CUDA; }, {"k", "device"}},
        {"unknown_device",
         [](Call& c) {
             for (auto* t : {&c.q, &c.k, &c.v, &c.slopes, &c.bias, &c.mask, &c.used_k, &c.out, &c.lse, &c.dout, &c.dlse,
                             &c.dq, &c.dk, &c.dv, &c.dbias})
                 t->device_type = 77;
         },
         {"77"},
         Pass::both,
         dense,
         FLASHTILE_UNSUPPORTED},

        // outputs that share memory
        {"out_is_q", [](Call& c) { c.out.data = c.q.data; }, {"out", "q"}, Pass::forward},
        {"out_overlaps_the_end_of_v",
         [](Call& c) { c.out.data = static_cast<float*>(c.v.data) + 2 * 7 * 2 * 6 - 1; },
         {"out", "v"},
         Pass::forward},
        {"lse_in_out", [](Call& c) { c.lse.data = c.out.data; }, {"lse", "out"}, Pass::forward},
        {"out_in_bias", [](Call& c) { c.out.data = c.bias.data; }, {"out", "bias"}, Pass::forward},
        {"dq_is_dk", [](Call& c) { c.dk.data = c.dq.data; }, {"dk", "dq"}, Pass::backward},
        {"dq_is_dout", [](Call& c) { c.dq.data = c.dout.data; }, {"dq", "dout"}, Pass::backward},
        {"dv_is_lse", [](Call& c) { c.dv.data = c.lse.data; }, {"dv", "lse"}, Pass::backward},
        {"out_broadcast_over_itself", [](Call& c) { c.out.stride[0] = 0; }, {"out.stride"}, Pass::forward},
        {"out_rows_overlap", [](Call& c) { c.out.stride[2] = 5; }, {"out.stride"}, Pass::forward},
        {"dk_broadcast_over_heads", [](Call& c) { c.dk.stride[2] = 0; }, {"dk.stride"}, Pass::backward},

        // options
        {"scale_nan",
         [](Call& c) {
             c.options.has_scale = 1;
             c.options.scale = kNaN;
         },
         {"scale", "nan"}},
        {"scale_infinite",
         [](Call& c) {
             c.options.has_scale = 1;
             c.options.scale = -INFINITY;
         },
         {"scale", "inf"}},
        {"softcap_negative", [](Call& c) { c.options.softcap = -2.0f; }, {"softcap", "-2"}},
        {"softcap_tiny", [](Call& c) { c.options.softcap = 1e-38f; }, {"softcap", "1e-38", "from 1e-30"}},
        {"softcap_nan", [](Call& c) { c.options.softcap = kNaN; }, {"softcap", "nan"}},
        {"dropout_one", [](Call& c) { c.options.dropout = 1.0; }, {"dropout", "1"}},
        {"dropout_negative", [](Call& c) { c.options.dropout = -0.25; }, {"dropout", "-0.25"}},
        {"dropout_nan", [](Call& c) { c.options.dropout = std::nan(""); }, {"dropout", "nan"}},
        {"window_left", [](Call& c) { c.options.window_left = -2; }, {"window_left", "-2"}},
        {"window_right",
         [](Call& c) { c.options.window_right = std::numeric_limits<std::int64_t>::min(); },
         {"window_right", "-9223372036854775808"}},
        {"causal", [](Call& c) { c.options.causal = 3; }, {"causal", "3"}},
        {"diagonal",
         [](Call& c) { c.options.diagonal = std::numeric_limits<std::int64_t>::min(); },
         {"diagonal is -9223372036854775808, allowed is -1073741824 to 1073741824"}},
        {"origin_b", [](Call& c) { c.options.origin_b = -1; }, {"origin_b is -1, allowed is 0 to 4294967296"}},
        {"origin_b_past_all",
         [](Call& c) { c.options.origin_b = std::numeric_limits<std::int64_t>::max(); },
         {"origin_b is 9223372036854775807, allowed is 0 to 4294967296"}},
        {"origin_h", [](Call& c) { c.options.origin_h = -2; }, {"origin_h is -2"}},
        {"origin_i", [](Call& c) { c.options.origin_i = -3; }, {"origin_i is -3"}},
        {"origin_j", [](Call& c) { c.options.origin_j = -4; }, {"origin_j is -4"}},
        {"origin_in_a_chunk",
         [](Call& c) { c.options.attention_chunk = 16, c.options.origin_j = 40; },
         {"origin_j is 40, allowed is a multiple of attention_chunk, which is 16"}},
        {"origin_past_what_draws",
         [](Call& c) { c.options.dropout = 0.5, c.options.origin_j = (std::int64_t{1} << 32) - 1; },
         {"origin_j is 4294967295, allowed is at most 2^32 - seqlen_k"}},
        {"diagonals_and_diagonal",
         [](Call& c) { c.options.diagonal = 4; },
         {"diagonal is 4, allowed is 0 beside diagonals"},
         Pass::both,
         shards},
        {"origins_i_and_origin_i",
         [](Call& c) { c.options.origin_i = 4; },
         {"origin_i is 4, allowed is 0 beside origins_i"},
         Pass::both,
         shards},
        {"origins_j_and_origin_j",
         [](Call& c) { c.options.origin_j = 16; },
         {"origin_j is 16, allowed is 0 beside origins_j"},
         Pass::both,
         shards},
        {"diagonals_entry",
         [](Call& c) { element<std::int64_t>(c.diagonals, 1) = -FLASHTILE_MAX_DIAGONAL - 1; },
         {"diagonals[1] is -1073741825, allowed is -1073741824 to 1073741824"},
         Pass::both,
         shards},
        {"origins_i_entry",
         [](Call& c) { element<std::int64_t>(c.origins_i, 0) = -1; },
         {"origins_i[0] is -1, allowed is 0 to 4294967296"},
         Pass::both,
         shards},
        {"origins_i_past_what_draws",
         [](Call& c) { element<std::int64_t>(c.origins_i, 1) = (std::int64_t{1} << 32) - 4; },
         {"origins_i[1] is 4294967292, allowed is at most 2^32 - seqlen_q (5) with dropout"},
         Pass::both,
         shards},
        {"origins_j_past_all",
         [](Call& c) { element<std::int64_t>(c.origins_j, 1) = std::numeric_limits<std::int64_t>::max(); },
         {"origins_j[1] is 9223372036854775807, allowed is 0 to 4294967296"},
         Pass::both,
         shards},
        {"origins_j_in_a_chunk",
         [](Call& c) { element<std::int64_t>(c.origins_j, 0) = 40; },
         {"origins_j[0] is 40, allowed is a multiple of attention_chunk, which is 16"},
         Pass::both,
         shards},
        {"diagonals_shape",
         [](Call& c) { c.diagonals.shape[0] = 1; },
         {"diagonals.shape is (1)", "(batch) = (2)"},
         Pass::both,
         shards},
        {"origins_j_dtype",
         [](Call& c) { c.origins_j.dtype = FLASHTILE_INT32; },
         {"origins_j.dtype is int32", "int64"},
         Pass::both,
         shards},
        {"origins_i_stride",
         [](Call& c) { c.origins_i.stride[0] = 2; },
         {"origins_i.stride", "2"},
         Pass::both,
         shards},
        {"diagonals_elsewhere",
         [](Call& c) { c.diagonals.device_type = FLASHTILE_CUDA; },
         {"diagonals", "device"},
         Pass::both,
         shards},
        {"out_in_diagonals",
         [](Call& c) { c.out.data = c.diagonals.data; },
         {"out is overlapping diagonals"},
         Pass::forward,
         shards},
        {"alignment", [](Call& c) { c.options.alignment = -1; }, {"alignment", "-1"}},
        {"threads", [](Call& c) { c.options.threads = -4; }, {"threads", "-4"}},
        {"isa", [](Call& c) { c.options.isa = 40; }, {"isa", "40"}},
        {"workspace_too_small",
         [](Call& c) {
             alignas(64) static char memory[64];
             c.options.workspace = memory;
             c.options.workspace_size = sizeof memory;
         },
         {"workspace_size", "64"}},
        {"workspace_misaligned",
         [](Call& c) {
             alignas(64) static char memory[64];
             c.options.workspace = memory + 8;
             c.options.workspace_size = 8;
         },
         {"workspace"}},
        {"workspace_over_q",
         [](Call& c) {
             c.options.workspace = line_of(c.q.data);
             c.options.workspace_size = 64;
         },
         {"workspace", "overlapping q"}},
        {"workspace_over_out",
         [](Call& c) {
             c.options.workspace = line_of(c.out.data);
             c.options.workspace_size = 64;
         },
         {"workspace", "overlapping out"}},
        {"options_size", [](Call& c) { c.options.size = 3; }, {"options.size", "3"}},
        {"options_size_zero", [](Call& c) { c.options.size = 0; }, {"options.size", "0"}},
        {"inputs_size", [](Call& c) { c.inputs.size = sizeof(flashtile_inputs) + 8; }, {"inputs.size"}},
        {"inputs_size_within_a_pointer", [](Call& c) { c.inputs.size = 20; }, {"inputs.size", "20", "multiple of 8"}},
        {"outputs_size", [](Call& c) { c.outputs.size = 0; }, {"outputs.size", "0"}, Pass::forward},
        {"gradients_size", [](Call& c) { c.gradients.size = 1; }, {"gradients.size", "1"}, Pass::backward},

        // lengths
        {"page_past_the_end",
         [](Call& c) { element<std::int32_t>(c.block_table, 0) = 99; },
         {"block_table[0, 0] is 99", "a page of the cache"},
         Pass::forward,
         paged},
        {"page_negative",
         [](Call& c) { element<std::int32_t>(c.block_table, 1) = -3; },
         {"block_table[0, 1] is -3"},
         Pass::forward,
         paged},
        {"table_rank", [](Call& c) { c.block_table.rank = 1; }, {"block_table.rank is 1"}, Pass::forward, paged},
        {"table_batch",
         [](Call& c) { c.block_table.shape[0] = 3; },
         {"block_table.shape is (3, 3)"},
         Pass::forward,
         paged},
        {"table_dtype",
         [](Call& c) { c.block_table.dtype = FLASHTILE_FP32; },
         {"block_table.dtype is fp32", "int32"},
         Pass::forward,
         paged},
        {"page_size_0",
         [](Call& c) { c.k.shape[1] = c.v.shape[1] = 0; },
         {"k.shape is", "a page_size from 1"},
         Pass::forward,
         paged},
        {"cache_dtype",
         [](Call& c) { c.k.dtype = FLASHTILE_FP16; },
         {"k.dtype is fp16", "fp32, that of q"},
         Pass::forward,
         paged},
        {"cache_rank", [](Call& c) { c.k.rank = 3; }, {"k.rank is 3", "4"}, Pass::forward, paged},
        {"v_pages", [](Call& c) { c.v.shape[0] = 1; }, {"v.shape is"}, Pass::forward, paged},
        {"table_and_rows",
         [](Call& c) { c.inputs.cache_batch_idx = &c.used_k; },
         {"cache_batch_idx is given with block_table"},
         Pass::forward,
         paged},
        {"table_and_lengths",
         [](Call& c) { c.inputs.cu_seqlens_k = c.inputs.cu_seqlens_q; },
         {"cu_seqlens_k is given beside a cache"},
         Pass::forward,
         packed_paged},
        {"keys_past_the_table",
         [](Call& c) { element<std::int32_t>(c.used_k, 0) = 8; },
         {"seqused_k[0] is 8", "7"},
         Pass::forward,
         paged},
        {"longest_past_the_table",
         [](Call& c) { c.inputs.max_seqlen_k = 13; },
         {"max_seqlen_k is 13", "at most 12"},
         Pass::forward,
         paged},
        {"row_past_the_cache",
         [](Call& c) { element<std::int32_t>(c.cache_batch_idx, 1) = 4; },
         {"cache_batch_idx[1] is 4", "0 to 3"},
         Pass::forward,
         cache_rows},
        {"first_k_negative",
         [](Call& c) { element<std::int32_t>(c.first_k, 0) = -1; },
         {"first_k[0] is -1", "0 or more"},
         Pass::forward,
         paged},
        {"used_q_past_the_end",
         [](Call& c) { element<std::int32_t>(c.used_q, 0) = 6; },
         {"seqused_q[0] is 6", "5"},
         Pass::forward,
         paged},
        {"tree_of_too_many",
         [](Call& c) { c.q.shape[1] = c.out.shape[1] = c.lse.shape[2] = 65, c.inputs.positions = nullptr; },
         {"tree_mask is given with 65 queries", "at most 64"},
         Pass::forward,
         paged},
        {"tree_shape", [](Call& c) { c.tree.shape[3] = 4; }, {"tree_mask.shape is"}, Pass::forward, paged},
        {"positions_without_a_tree",
         [](Call& c) { c.inputs.tree_mask = nullptr; },
         {"positions is given without tree_mask"},
         Pass::forward,
         paged},
        {"positions_with_a_diagonal",
         [](Call& c) { c.options.diagonal = -1; },
         {"diagonal is -1, allowed is 0 with positions"},
         Pass::forward,
         paged},
        {"positions_with_diagonals",
         [](Call& c) {
             static std::int64_t zeros[2] = {0, 0};
             c.diagonals = view(zeros, dtype::int64, {2}).raw();
             c.inputs.diagonals = &c.diagonals;
         },
         {"diagonals is given with positions"},
         Pass::forward,
         paged},
        {"positions_shape",
         [](Call& c) { c.positions.shape[1] = 4; },
         {"positions.shape is (2, 4)", "(batch, seqlen_q) = (2, 5)"},
         Pass::forward,
         paged},
        {"positions_dtype",
         [](Call& c) { c.positions.dtype = FLASHTILE_FP32; },
         {"positions.dtype is fp32", "int32"},
         Pass::forward,
         paged},
        {"position_negative",
         [](Call& c) { element<std::int32_t>(c.positions, 3) = -1; },
         {"positions[0, 3] is -1", "0 or more"},
         Pass::forward,
         paged},
        {"prefix_without_pages",
         [](Call& c) { c.inputs.prefix_groups = &c.used_k, c.inputs.prefix_lengths = &c.used_k; },
         {"prefix_groups is given without block_table"},
         Pass::forward,
         cache_rows},
        {"prefix_without_a_cache",
         [](Call& c) { c.inputs.prefix_groups = &c.used_k, c.inputs.prefix_lengths = &c.used_k; },
         {"prefix_groups is given without block_table"}},
        {"prefix_lengths_without_a_cache",
         [](Call& c) { c.inputs.prefix_lengths = &c.used_k; },
         {"prefix_lengths is given without prefix_groups"}},
        {"prefix_lengths_alone",
         [](Call& c) { c.inputs.prefix_groups = nullptr; },
         {"prefix_lengths is given without prefix_groups"},
         Pass::forward,
         paged},
        {"prefix_lengths_missing",
         [](Call& c) { c.inputs.prefix_lengths = nullptr; },
         {"prefix_lengths is NULL"},
         Pass::forward,
         paged},
        {"prefix_lengths_shape",
         [](Call& c) { c.prefix_lengths.shape[0] = 2; },
         {"prefix_lengths.shape is (2)", "(groups) = (1)"},
         Pass::forward,
         paged},
        {"prefix_groups_dtype",
         [](Call& c) { c.prefix_groups.dtype = FLASHTILE_FP32; },
         {"prefix_groups.dtype is fp32", "int32"},
         Pass::forward,
         paged},
        {"prefix_groups_past_the_batch",
         [](Call& c) { element<std::int32_t>(c.prefix_groups, 1) = 3; },
         {"prefix_groups[1] is 3", "at most the total, 2"},
         Pass::forward,
         paged},
        {"prefix_groups_from_1",
         [](Call& c) { element<std::int32_t>(c.prefix_groups, 0) = 1; },
         {"prefix_groups[0] is 1", "0"},
         Pass::forward,
         paged},
        {"prefix_too_long",
         [](Call& c) { element<std::int32_t>(c.prefix_lengths, 0) = 8; },
         {"prefix_lengths[0] is 8", "7"},
         Pass::forward,
         paged},
        {"prefix_negative",
         [](Call& c) { element<std::int32_t>(c.prefix_lengths, 0) = -1; },
         {"prefix_lengths[0] is -1"},
         Pass::forward,
         paged},
        {"page_of_the_prefix",  // the first sequence's own keys do not reach so far
         [](Call& c) {
             element<std::int32_t>(c.used_k, 0) = 4, element<std::int32_t>(c.used_k, 1) = 7;
             element<std::int32_t>(c.prefix_lengths, 0) = 6, element<std::int32_t>(c.block_table, 1) = 55;
         },
         {"block_table[0, 1] is 55", "a page of the cache"},
         Pass::forward,
         paged},
        {"sm_limit_negative", [](Call& c) { c.options.sm_limit = -1; }, {"sm_limit is -1", "0 (all)"}},
        {"sinks_shape",
         [](Call& c) { c.sinks.shape[0] = 2; },
         {"sinks.shape is (2)", "(heads) = (4)"},
         Pass::both,
         with_sinks},
        {"sinks_dtype",
         [](Call& c) { c.sinks.dtype = FLASHTILE_BF16; },
         {"sinks.dtype is bf16", "fp32"},
         Pass::both,
         with_sinks},
        {"dsinks_shape", [](Call& c) { c.dsinks.shape[0] = 2; }, {"dsinks.shape is (2)"}, Pass::backward, with_sinks},
        {"dsinks_without_sinks",
         [](Call& c) { c.inputs.sinks = nullptr; },
         {"dsinks is given without sinks"},
         Pass::backward,
         with_sinks},
        {"backward_of_pages",
         [](Call&) {},
         {"block_table is given to backward", "only forward takes it"},
         Pass::backward,
         paged},
        {"backward_of_rows", [](Call&) {}, {"cache_batch_idx is given to backward"}, Pass::backward, cache_rows},
        {"backward_of_cached_keys",
         [](Call& c) { c.inputs.block_table = nullptr, c.inputs.seqused_k = nullptr, c.inputs.max_seqlen_k = -1; },
         {"cu_seqlens_k is NULL", "backward takes no cache"},
         Pass::backward,
         packed_paged},
        {"chunk_negative", [](Call& c) { c.options.attention_chunk = -1; }, {"attention_chunk is -1"}},
        {"splits_negative", [](Call& c) { c.options.num_splits = -1; }, {"num_splits is -1"}},
        {"splits_too_many", [](Call& c) { c.options.num_splits = 257; }, {"num_splits is 257", "256"}},
        {"splits_with_batch_invariant",
         [](Call& c) { c.options.num_splits = 2, c.options.batch_invariant = 1; },
         {"num_splits is 2", "0 with batch_invariant"}},
        {"used_past_the_end", [](Call& c) { element<std::int32_t>(c.used_k, 1) = 8; }, {"seqused_k[1]", "8"}},
        {"used_negative", [](Call& c) { element<std::int32_t>(c.used_k, 0) = -1; }, {"seqused_k[0]", "-1"}},
        {"used_shape", [](Call& c) { c.used_k.shape[0] = 1; }, {"seqused_k.shape", "1"}},
        {"max_seqlen_of_a_dense_batch", [](Call& c) { c.inputs.max_seqlen_q = 5; }, {"max_seqlen_q", "5"}},
        {"cu_seqlens_start",
         [](Call& c) { element<std::int32_t>(c.cu_seqlens_q, 0) = 1; },
         {"cu_seqlens_q[0]", "1"},
         Pass::both,
         packed},
        {"cu_seqlens_decrease",
         [](Call& c) { element<std::int32_t>(c.cu_seqlens_q, 2) = 4; },
         {"cu_seqlens_q[2]", "4"},
         Pass::both,
         packed},
        {"cu_seqlens_past_the_end",
         [](Call& c) { element<std::int32_t>(c.cu_seqlens_k, 2) = 12; },
         {"cu_seqlens_k[2]", "12"},
         Pass::both,
         packed},
        {"cu_seqlens_negative",
         [](Call& c) { element<std::int32_t>(c.cu_seqlens_k, 1) = -3; },
         {"cu_seqlens_k[1]", "-3"},
         Pass::both,
         packed},
        {"cu_seqlens_dtype",
         [](Call& c) { c.cu_seqlens_q.dtype = FLASHTILE_FP32; },
         {"cu_seqlens_q.dtype", "fp32"},
         Pass::both,
         packed},
        {"cu_seqlens_count",
         [](Call& c) { c.cu_seqlens_k.shape[0] = 2; },
         {"cu_seqlens_k.shape", "2"},
         Pass::both,
         packed},
        {"cu_seqlens_of_one_side_only",
         [](Call& c) { c.inputs.cu_seqlens_k = nullptr; },
         {"cu_seqlens_k", "NULL"},
         Pass::both,
         packed},
        {"max_seqlen_missing", [](Call& c) { c.inputs.max_seqlen_k = -1; }, {"max_seqlen_k", "-1"}, Pass::both, packed},
        {"max_seqlen_too_small", [](Call& c) { c.inputs.max_seqlen_q = 4; }, {"max_seqlen_q", "4"}, Pass::both, packed},
        {"max_seqlen_past_any_memory",
         [](Call& c) { c.inputs.max_seqlen_k = kHuge; },
         {"the longer seqlen", "4611686018427387904", "2^47"},
         Pass::both,
         packed},
        {"packed_rank", [](Call& c) { c.q.rank = 4; }, {"q.rank", "4"}, Pass::both, packed},
    };
    return calls;
}

class BadInput : public testing::TestWithParam<Wrong> {
protected:
    static void expect_refused(Call& call, flashtile_status status) {
        const Wrong& wrong = GetParam();
        const std::string message = flashtile_last_error();
        EXPECT_EQ(status, wrong.status) << flashtile_status_name(status) << ": " << message;
        for (const std::string& part : wrong.named)
            EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' does not name " << part;
        EXPECT_TRUE(call.outputs_untouched());
    }
};

TEST_P(BadInput, IsRefusedBeforeAnythingIsWritten) {
    const Wrong& wrong = GetParam();
    if (wrong.pass != Pass::backward) {
        SCOPED_TRACE("forward");
        Call call(wrong.base());
        wrong.spoil(call);
        expect_refused(call, call.forward());
    }
    if (wrong.pass != Pass::forward) {
        SCOPED_TRACE("backward");
        Call call(wrong.base());
        wrong.spoil(call);
        expect_refused(call, call.backward());
    }
}

INSTANTIATE_TEST_SUITE_P(Arguments, BadInput, testing::ValuesIn(wrong_calls()),
                         [](const testing::TestParamInfo<Wrong>& tested) { return std::string(tested.param.name); });

// Before the table spoils them, the calls are right.
TEST(BadInput, TheUnspoiltCallsAreAccepted) {
    for (Case (*base)() : {dense, packed, with_sinks, shards}) {
        Call call(base());
        ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
        ASSERT_EQ(call.backward(), FLASHTILE_OK) << flashtile_last_error();
    }
    for (Case (*base)() : {paged, cache_rows, packed_paged}) {
        Call call(base());
        ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
    }
}

TEST(BadInput, NullStructs) {
    Call call(dense());
    EXPECT_EQ(flashtile_forward(&call.options, nullptr, &call.outputs), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(flashtile_last_error(), "inputs"), nullptr);
    EXPECT_EQ(flashtile_forward(&call.options, &call.inputs, nullptr), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(flashtile_last_error(), "outputs"), nullptr);
    EXPECT_EQ(flashtile_backward(&call.options, &call.inputs, nullptr), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(flashtile_last_error(), "gradients"), nullptr);
    EXPECT_EQ(flashtile_forward_workspace(&call.options, &call.inputs, &call.outputs, nullptr),
              FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(flashtile_last_error(), "bytes"), nullptr);
    EXPECT_EQ(flashtile_dropout_mask(&call.options, nullptr), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(flashtile_last_error(), "keep"), nullptr);
    EXPECT_TRUE(call.outputs_untouched());
}

TEST(BadInput, ExceptionsOfTheCppInterfaceCarryCodeAndMessage) {
    Call call(dense());
    try {
        forward({.softcap = -1.0f}, call.data.q.view(), call.data.k.view(), call.data.v.view(), call.data.out.view());
        FAIL() << "a negative softcap was accepted";
    } catch (const error& e) {
        EXPECT_EQ(e.code(), status::invalid_argument);
        EXPECT_NE(std::string(e.what()).find("softcap is -1"), std::string::npos) << e.what();
    }
}

// The gradients of a packed qkv tensor interleave and share no element.
TEST(BadInput, InterleavedGradientsAreNoOverlap) {
    Case c = dense();
    c.kv_heads = 4;
    c.seqlen_k = 5;
    c.head_dim_v = 8;
    c.used_k = {};
    Call call(c);
    std::vector<float> qkv(2 * 5 * 3 * 4 * 8);  // (batch, seqlen, 3, heads, d)
    int part = 0;
    for (flashtile_tensor* t : {&call.dq, &call.dk, &call.dv}) {
        t->data = qkv.data() + part++ * 4 * 8;
        t->stride[0] = 5 * 3 * 4 * 8;
        t->stride[1] = 3 * 4 * 8;
        t->stride[2] = 8;
    }
    ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
    EXPECT_EQ(call.backward(), FLASHTILE_OK) << flashtile_last_error();
    call.dk.data = qkv.data() + 4 * 8 - 1;  // now one element of each row is dq's too
    EXPECT_EQ(call.backward(), FLASHTILE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace flashtile::unit
