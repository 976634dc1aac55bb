// append_refusal_test.cpp: what flashtile_append_kv refuses before it looks at any value: each error names the
// argument, its value and what is allowed, and nothing is written. append_test.cpp has the values.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/guarded_tensor.h"
#include "unit/refusals.h"

namespace flashtile::unit {
namespace {

using conformance::GuardedTensor;

// A paged cache of 6 pages of 4 rows, two new rows for each of two sequences, rotated with their queries.
struct Call {
    GuardedTensor memory[9] = {{fp32, {2, 2, 2, 16}}, {fp32, {2, 2, 2, 8}},   {fp32, {6, 4, 2, 16}},
                               {fp32, {6, 4, 2, 8}},  {dtype::int32, {2, 3}}, {dtype::int32, {2}},
                               {fp32, {20, 8}},       {fp32, {20, 8}},        {fp32, {2, 2, 4, 16}}};
    GuardedTensor out_memory{fp32, {2, 2, 4, 16}}, slots_memory{dtype::int64, {2, 2}},
        positions_memory{dtype::int64, {2, 2}}, cu_memory{dtype::int32, {3}};
    flashtile_tensor k = memory[0].view().raw(), v = memory[1].view().raw(), k_cache = memory[2].view().raw(),
                     v_cache = memory[3].view().raw(), table = memory[4].view().raw(), lengths = memory[5].view().raw(),
                     cos = memory[6].view().raw(), sin = memory[7].view().raw(), q = memory[8].view().raw(),
                     q_out = out_memory.view().raw(), slots = slots_memory.view().raw(),
                     positions = positions_memory.view().raw(), cu = cu_memory.view().raw();
    flashtile_append_tensors t = FLASHTILE_APPEND_TENSORS_INIT;
    flashtile_options options = FLASHTILE_OPTIONS_INIT;

    Call() {
        for (GuardedTensor& each : memory)
            for (std::size_t n = 0; n < each.size(); ++n) each.set(n, static_cast<double>(n % 3));
        t.k = &k, t.v = &v, t.k_cache = &k_cache, t.v_cache = &v_cache, t.block_table = &table;
        t.cache_seqlens = &lengths, t.rotary_cos = &cos, t.rotary_sin = &sin, t.q = &q, t.q_out = &q_out;
        for (GuardedTensor& each : memory) each.remember();
    }
    flashtile_status run() { return flashtile_append_kv(&options, &t); }
};

TEST(AppendRefuses, WhatIsWrong) {
    const Refusal<Call> list[] = {
        {[](Call& c) { c.t.size = 7; }, {"tensors.size is 7"}},
        {[](Call& c) { c.t.k = nullptr; }, {"k is NULL"}},
        {[](Call& c) { c.t.k_cache = nullptr; }, {"k_cache is NULL"}},
        {[](Call& c) { c.t.v = nullptr; }, {"v is NULL", "since v_cache is given, or both NULL"}},
        {[](Call& c) { c.t.v_cache = nullptr; }, {"v_cache is NULL", "since v is given, or both NULL"}},
        {[](Call& c) { c.t.cache_seqlens = nullptr; }, {"cache_seqlens is NULL", "(or slots)"}},
        {[](Call& c) { c.k.dtype = FLASHTILE_INT32; }, {"k.dtype is int32", "fp32, fp16 or bf16"}},
        {[](Call& c) { c.k_cache.dtype = FLASHTILE_BF16; },
         {"k_cache.dtype is bf16", "fp32, that of k (allowed there are fp32, fp16 and bf16)"}},
        {[](Call& c) { c.v_cache.dtype = FLASHTILE_FP8_E4M3; }, {"v_cache.dtype is fp8_e4m3", "fp32, that of k"}},
        {[](Call& c) { c.q.dtype = FLASHTILE_FP16; }, {"q.dtype is fp16", "fp32, that of k"}},
        {[](Call& c) { c.k.rank = 3; }, {"k.rank is 3", "4: (batch, seqlen_new, kv_heads, head_dim)"}},
        {[](Call& c) { c.t.cu_seqlens_k_new = &c.cu; }, {"k.rank is 4", "3: (total_new, kv_heads, head_dim)"}},
        {[](Call& c) { c.v.shape[1] = 1; }, {"v.shape is (2, 1, 2, 8)", "= (2, 2, 2, 8)"}},
        {[](Call& c) { c.k_cache.shape[2] = 1; }, {"k_cache.shape is (6, 4, 1, 16)", "= (6, 4, 2, 16)"}},
        {[](Call& c) { c.v_cache.shape[0] = 5; }, {"v_cache.shape is (5, 4, 2, 8)", "= (6, 4, 2, 8)"}},
        {[](Call& c) { c.k_cache.shape[1] = c.v_cache.shape[1] = 0; },
         {"k_cache.shape is (6, 0, 2, 16)", "a page_size from 1"}},
        {[](Call& c) { c.table.dtype = FLASHTILE_FP32; }, {"block_table.dtype is fp32", "int32"}},
        {[](Call& c) { c.table.shape[0] = 1; }, {"block_table.shape is (1, 3)", "(batch, max_pages) = (2, 3)"}},
        {[](Call& c) { c.table.rank = 1; }, {"block_table.rank is 1"}},
        {[](Call& c) { c.lengths.shape[0] = 1; }, {"cache_seqlens.shape is (1)", "(batch) = (2)"}},
        {[](Call& c) { c.lengths.dtype = FLASHTILE_FP32; }, {"cache_seqlens.dtype is fp32", "int32 or int64"}},
        {[](Call& c) { c.t.slots = &c.slots; }, {"slots is given with block_table"}},
        {[](Call& c) { c.t.cache_batch_idx = &c.lengths; }, {"cache_batch_idx is given with block_table"}},
        {[](Call& c) { c.t.block_table = nullptr, c.t.slots = &c.slots, c.slots.dtype = FLASHTILE_INT32; },
         {"slots.dtype is int32", "int64"}},
        {[](Call& c) { c.t.block_table = nullptr, c.t.slots = &c.slots, c.slots.rank = 1; },
         {"slots.rank is 1", "2: one a new row"}},
        {[](Call& c) { c.t.block_table = nullptr, c.t.slots = &c.slots, c.slots.stride[0] = 3; },
         {"slots.stride is 3 in dimension 0", "2 (contiguous)"}},
        {[](Call& c) { c.t.positions = &c.positions, c.positions.stride[0] = 0; },
         {"positions.stride is 0 in dimension 0", "2 (contiguous)"}},
        {[](Call& c) { c.t.block_table = nullptr, c.t.slots = &c.slots, c.t.cache_seqlens = nullptr; },
         {"cache_seqlens is NULL with slots and rotary_cos"}},
        {[](Call& c) { c.t.block_table = nullptr, c.k_cache.shape[0] = c.v_cache.shape[0] = 1; },
         {"k_cache.shape is (1, 4, 2, 16)", "at least 2 rows"}},
        {[](Call& c) { c.t.block_table = nullptr, c.k_cache.shape[1] = c.v_cache.shape[1] = 1; },
         {"k.shape is (2, 2, 2, 16)", "at most 1 new rows a sequence"}},
        {[](Call& c) { c.t.rotary_sin = nullptr; }, {"rotary_sin is NULL"}},
        {[](Call& c) { c.t.rotary_cos = nullptr; }, {"rotary_cos is NULL"}},
        {[](Call& c) { c.t.rotary_cos = c.t.rotary_sin = nullptr; }, {"q is given without rotary_cos and rotary_sin"}},
        {[](Call& c) { c.sin.dtype = FLASHTILE_FP16; }, {"rotary_sin.dtype is fp16", "fp32, that of rotary_cos"}},
        {[](Call& c) { c.cos.dtype = c.sin.dtype = FLASHTILE_INT32; }, {"rotary_cos.dtype is int32"}},
        {[](Call& c) { c.sin.shape[0] = 19; }, {"rotary_sin.shape is (19, 8)", "= (20, 8)"}},
        {[](Call& c) { c.t.rotary_begin = 2; }, {"rotary_cos.shape is (20, 8)", "1 to 7 angles"}},
        {[](Call& c) { c.t.rotary_begin = -1; }, {"rotary_begin is -1", "0 to 15"}},
        {[](Call& c) { c.cos.shape[0] = c.sin.shape[0] = 1; }, {"rotary_cos.shape is (1, 8)", "at least 2 positions"}},
        {[](Call& c) { c.cos.shape[0] = c.sin.shape[0] = 0; }, {"rotary_cos.shape is (0, 8)", "at least one position"}},
        {[](Call& c) { c.t.q_out = nullptr; }, {"q_out is NULL"}},
        {[](Call& c) { c.t.q = nullptr; }, {"q_out is given without q"}},
        {[](Call& c) { c.q.shape[3] = c.q_out.shape[3] = 8; }, {"q.shape is (2, 2, 4, 8)", "k's head_dim"}},
        {[](Call& c) { c.q_out.shape[1] = 1; }, {"q_out.shape is (2, 1, 4, 16)", "q's shape"}},
        {[](Call& c) { c.t.positions = &c.positions, c.q.shape[1] = c.q_out.shape[1] = 1; },
         {"positions_q is NULL", "since q has other rows than k"}},
        {[](Call& c) { c.t.positions = &c.positions, c.positions.shape[1] = 1; }, {"positions.shape is (2, 1)"}},
        {[](Call& c) { c.lengths.device_type = FLASHTILE_CUDA; }, {"cache_seqlens's device is 2:0", "that of k"}},
        {[](Call& c) { c.k_cache.stride[3] = 2; }, {"k_cache.stride is 2 in the innermost dimension"}},
        {[](Call& c) { c.v_cache.data = static_cast<float*>(c.k_cache.data) + 8; },
         {"v_cache is overlapping k_cache", "memory of its own"}},
        {[](Call& c) { c.k.data = c.k_cache.data; }, {"k_cache is overlapping k"}},
        {[](Call& c) { c.q_out.data = static_cast<float*>(c.q.data) + 1; }, {"q_out is overlapping q"}},
        {[](Call& c) { c.k_cache.stride[0] = 0; }, {"k_cache.stride is such that elements share memory"}},
    };
    expect_refused<Call>(list, [](const Call& call) {
        for (const GuardedTensor& each : call.memory) EXPECT_TRUE(each.unchanged());
        EXPECT_TRUE(call.out_memory.poison_intact(std::vector<bool>(call.out_memory.size(), false)));
    });
    EXPECT_EQ(flashtile_append_kv(nullptr, nullptr), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(flashtile_last_error()).find("tensors is NULL"), std::string::npos);
}

TEST(AppendRefuses, NothingOfAGoodCall) {
    Call call;
    EXPECT_EQ(call.run(), FLASHTILE_OK) << flashtile_last_error();
    EXPECT_NE(std::string(flashtile_last_run()).find(" append_kv, "), std::string::npos) << flashtile_last_run();
}

}  // namespace
}  // namespace flashtile::unit
