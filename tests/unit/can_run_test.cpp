// can_run_test.cpp: the question whether a problem can run is answered as the run itself would, without a run.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "conformance/target.h"
#include "unit/call.h"
#include "unit/run.h"

namespace flashtile::unit {
namespace {

conformance::Case packed() {
    conformance::Case c = small();
    c.lengths_q = {5, 2};
    c.lengths_k = {7, 4};
    return c;
}

struct Answer {
    flashtile_status status;
    std::string on, error;
};

Answer ask(const Call& call, bool backward) {
    const char* on = nullptr;
    const flashtile_status status = flashtile_can_run(&call.options, &call.inputs, backward ? 1 : 0, &on);
    return {status, on != nullptr ? on : "", status != FLASHTILE_OK ? flashtile_last_error() : ""};
}

TEST(CanRun, NamesWhatTheRunThenNames) {
    for (const isa which : kIsas)
        for (const dtype type : {fp32, bf16}) {
            conformance::Case c = small();
            c.type = type;
            Call call(c);
            call.options.isa = static_cast<std::int32_t>(which);
            call.options.threads = 2;
            const Answer forward = ask(call, false), backward = ask(call, true);
            EXPECT_TRUE(call.outputs_untouched());
            if (call.forward() != FLASHTILE_OK) {
                EXPECT_EQ(forward.status, FLASHTILE_UNSUPPORTED);
                EXPECT_EQ(forward.error, flashtile_last_error());
                EXPECT_EQ(backward.error, flashtile_last_error());
                continue;
            }
            EXPECT_EQ(forward.on, last_run());
            ASSERT_EQ(call.backward(), FLASHTILE_OK) << flashtile_last_error();
            EXPECT_EQ(backward.on, last_run());
        }
}

TEST(CanRun, RefusesWhatTheRunRefusesInTheSameWords) {
    struct Spoilt {
        const char* name;
        void (*spoil)(Call&);
    };
    const Spoilt spoilt[] = {
        {"softcap", [](Call& c) { c.options.softcap = -1.0f; }},
        {"dropout", [](Call& c) { c.options.dropout = 1.5; }},
        {"threads", [](Call& c) { c.options.threads = 5000; }},
        {"options' size", [](Call& c) { c.options.size = 3; }},
        {"q NULL", [](Call& c) { c.inputs.q = nullptr; }},
        {"k's shape", [](Call& c) { c.k.shape[3] = 7; }},
        {"q's dtype", [](Call& c) { c.q.dtype = c.k.dtype = c.v.dtype = FLASHTILE_BOOL; }},
        {"no such device", [](Call& c) { c.q.device_type = c.k.device_type = c.v.device_type = 77; }},
    };
    for (const Spoilt& each : spoilt) {
        SCOPED_TRACE(each.name);
        Call call(small());
        each.spoil(call);
        if (call.q.device_type == 77) call.out.device_type = call.lse.device_type = 77;
        const Answer answer = ask(call, false);
        EXPECT_EQ(answer.status, call.forward());
        EXPECT_NE(answer.status, FLASHTILE_OK);
        EXPECT_EQ(answer.error, flashtile_last_error());
        EXPECT_EQ(ask(call, true).error, answer.error);
    }
    Call call(small());
    EXPECT_EQ(flashtile_can_run(&call.options, nullptr, 0, nullptr), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_STREQ(flashtile_last_error(), "inputs is NULL, allowed is a pointer to the struct");
}

TEST(CanRun, RefusesBackwardWhatForwardAloneTakes) {
    conformance::Case pages = small(), padded = small(), tree = small();
    pages.cache = {.present = true, .page_size = 8};
    padded.first_k = {3};
    tree.tree = true;
    for (const conformance::Case& c : {pages, padded, tree}) {
        Call call(c);
        EXPECT_EQ(ask(call, false).error, "");
        const Answer answer = ask(call, true);
        EXPECT_EQ(answer.status, FLASHTILE_INVALID_ARGUMENT);
        EXPECT_EQ(call.backward(), FLASHTILE_INVALID_ARGUMENT);
        EXPECT_EQ(answer.error, flashtile_last_error());
    }
}

// Nobody may touch these addresses; and lengths that the run would refuse are not looked at.
TEST(CanRun, ReadsNoMemory) {
    Call call(packed());
    for (flashtile_tensor* t : {&call.q, &call.k, &call.v, &call.cu_seqlens_q, &call.cu_seqlens_k})
        t->data = reinterpret_cast<void*>(std::uintptr_t{64});
    EXPECT_EQ(ask(call, false).error, "");
    EXPECT_EQ(ask(call, true).error, "");
}

TEST(CanRun, TakesNullForTheOptionsAndForTheAnswer) {
    Call call(small());
    EXPECT_EQ(flashtile_can_run(nullptr, &call.inputs, 0, nullptr), FLASHTILE_OK) << flashtile_last_error();
}

TEST(CanRun, SaysWhatIsMissingForCuda) {
    if (conformance::why_not(conformance::cuda_target()).empty()) GTEST_SKIP() << "this machine has a GPU";
    Call call(small());
    for (flashtile_tensor* t : {&call.q, &call.k, &call.v, &call.out, &call.lse}) t->device_type = FLASHTILE_CUDA;
    const Answer answer = ask(call, false);
    EXPECT_EQ(answer.status, FLASHTILE_UNSUPPORTED);
    EXPECT_NE(answer.error, "");
    EXPECT_EQ(call.forward(), FLASHTILE_UNSUPPORTED);
    EXPECT_EQ(answer.error, flashtile_last_error());
    EXPECT_EQ(ask(call, true).error, answer.error);
}

TEST(CanRun, InCpp) {
    conformance::ProblemData data(small());
    flashtile::options o = data.options(isa::portable);
    o.threads = 1;
    const runnable forward = can_run_forward(o, data.q.view(), data.k.view(), data.v.view());
    EXPECT_TRUE(forward);
    EXPECT_EQ(forward.on, "cpu portable forward, 1 thread");
    EXPECT_EQ(can_run_backward(o, data.q.view(), data.k.view(), data.v.view()).on, "cpu portable backward, 1 thread");
    o.softcap = -1.0f;
    const runnable refused = can_run_forward(o, data.q.view(), data.k.view(), data.v.view());
    EXPECT_FALSE(refused);
    EXPECT_EQ(refused.on, "");
    EXPECT_EQ(refused.why_not, "softcap is -1, allowed is 0 (off) or a number from 1e-30");
}

}  // namespace
}  // namespace flashtile::unit
