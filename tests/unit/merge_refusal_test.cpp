// merge_refusal_test.cpp: what flashtile_merge refuses: each error names the argument, its value and what is allowed,
// and nothing is written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/guarded_tensor.h"
#include "unit/refusals.h"

namespace flashtile::unit {
namespace {

using conformance::GuardedTensor;

struct Call {
    GuardedTensor outs_memory{fp32, {3, 2, 5, 4, 8}}, lses_memory{fp32, {3, 2, 4, 5}}, out_memory{fp32, {2, 5, 4, 8}},
        lse_memory{fp32, {2, 4, 5}};
    flashtile_tensor outs = outs_memory.view().raw(), lses = lses_memory.view().raw(), out = out_memory.view().raw(),
                     lse = lse_memory.view().raw();
    flashtile_merge_tensors tensors = FLASHTILE_MERGE_TENSORS_INIT;
    flashtile_options options = FLASHTILE_OPTIONS_INIT;

    Call() {
        tensors.outs = &outs;
        tensors.lses = &lses;
        tensors.out = &out;
        tensors.lse = &lse;
    }
    flashtile_status run() { return flashtile_merge(&options, &tensors); }
};

TEST(MergeRefuses, WhatIsWrong) {
    const Refusal<Call> list[] = {
        {[](Call& c) { c.tensors.size = 3; }, {"tensors.size is 3"}},
        {[](Call& c) { c.tensors.outs = nullptr; }, {"outs is NULL", "a tensor"}},
        {[](Call& c) { c.tensors.lses = nullptr; }, {"lses is NULL"}},
        {[](Call& c) { c.tensors.out = nullptr; }, {"out is NULL"}},
        {[](Call& c) { c.outs.rank = 3; }, {"outs.rank is 3", "5: (n, batch, seqlen, heads, head_dim), or 4"}},
        {[](Call& c) { c.outs.dtype = FLASHTILE_INT32; }, {"outs.dtype is int32", "fp32, fp16 or bf16"}},
        {[](Call& c) { c.outs.dtype = 77; }, {"outs.dtype is 77"}},
        {[](Call& c) { c.out.dtype = FLASHTILE_BOOL; }, {"out.dtype is bool", "fp32, fp16 or bf16"}},
        {[](Call& c) { c.lses.dtype = FLASHTILE_BF16; }, {"lses.dtype is bf16", "fp32"}},
        {[](Call& c) { c.lse.dtype = FLASHTILE_FP16; }, {"lse.dtype is fp16", "fp32"}},
        {[](Call& c) { c.lses.shape[2] = 5, c.lses.shape[3] = 4; },
         {"lses.shape is (3, 2, 5, 4)", "(n, batch, heads, seqlen) = (3, 2, 4, 5)"}},
        {[](Call& c) { c.out.shape[0] = 1; }, {"out.shape is (1, 5, 4, 8)", "outs' shape without n = (2, 5, 4, 8)"}},
        {[](Call& c) { c.lse.shape[1] = 3; }, {"lse.shape is (2, 3, 5)", "lses' shape without n = (2, 4, 5)"}},
        {[](Call& c) { c.outs.shape[4] = 513; }, {"outs.shape is (3, 2, 5, 4, 513)", "a head_dim from 1 to 512"}},
        {[](Call& c) { c.outs.shape[4] = 0; }, {"a head_dim from 1 to 512"}},
        {[](Call& c) { c.outs.stride[4] = 2; }, {"outs.stride is 2 in the innermost dimension"}},
        {[](Call& c) { c.lse.stride[2] = 2; }, {"lse.stride is 2 in the innermost dimension"}},
        {[](Call& c) { c.out.device_type = FLASHTILE_CUDA; }, {"out's device is 2:0", "that of outs, 1:0"}},
        {[](Call& c) { c.out.stride[2] = 0; }, {"out.stride is such that elements share memory"}},
        {[](Call& c) { c.outs.shape[1] = std::int64_t{1} << 60, c.outs.shape[2] = 0; }, {"at most 2^47"}},
        {[](Call& c) { c.out.data = static_cast<float*>(c.outs.data) + 8; },
         {"out is overlapping outs[0]", "memory of its own, or that of one of outs"}},
        {[](Call& c) { c.out.data = c.outs.data, c.out.dtype = FLASHTILE_BF16; }, {"out is overlapping outs[0]"}},
        {[](Call& c) { c.lse.data = static_cast<float*>(c.lses.data) + c.lses.stride[0] + 1; },
         {"lse is overlapping lses[1]"}},
        {[](Call& c) { c.lse.data = c.out.data; }, {"lse is overlapping out"}},
        {[](Call& c) { c.lse.data = c.outs.data; }, {"lse is overlapping outs"}},
        {[](Call& c) { c.lses.data = c.out.data; }, {"out is overlapping lses"}},
        {[](Call& c) { c.options.threads = -1; }, {"threads is -1"}},
    };
    expect_refused<Call>(list, [](const Call& call) {
        for (const GuardedTensor* t : {&call.out_memory, &call.lse_memory, &call.outs_memory, &call.lses_memory})
            EXPECT_TRUE(t->poison_intact(std::vector<bool>(t->size(), false)));
    });
    EXPECT_EQ(flashtile_merge(nullptr, nullptr), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(flashtile_last_error()).find("tensors is NULL"), std::string::npos);
}

TEST(MergeRefuses, NothingOfAGoodCall) {
    Call call;
    for (GuardedTensor* t : {&call.outs_memory, &call.lses_memory})
        for (std::size_t n = 0; n < t->size(); ++n) t->set(n, 1.0);
    EXPECT_EQ(call.run(), FLASHTILE_OK) << flashtile_last_error();
    EXPECT_EQ(std::string(flashtile_last_run()).substr(0, 4), "cpu ");
    call.tensors.lse = nullptr;
    EXPECT_EQ(call.run(), FLASHTILE_OK) << flashtile_last_error();
    call.options.size = sizeof call.options.size;  // an older caller
    EXPECT_EQ(call.run(), FLASHTILE_OK) << flashtile_last_error();
    EXPECT_EQ(call.out_memory.get(0), 1.0);
}

}  // namespace
}  // namespace flashtile::unit
