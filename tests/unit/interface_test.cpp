// interface_test.cpp: versions, names, settings, and callers built against an older header.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "unit/call.h"
#include "unit/run.h"

namespace flashtile::unit {
namespace {

TEST(Interface, Version) {
    EXPECT_STREQ(flashtile_version(), FLASHTILE_VERSION_STRING);
    EXPECT_STREQ(version(), "0.1.0");
    EXPECT_EQ(FLASHTILE_VERSION_MAJOR * 100 + FLASHTILE_VERSION_MINOR * 10 + FLASHTILE_VERSION_PATCH, 10);
}

TEST(Interface, Names) {
    EXPECT_STREQ(flashtile_status_name(FLASHTILE_OK), "ok");
    EXPECT_STREQ(flashtile_status_name(FLASHTILE_INVALID_ARGUMENT), "invalid argument");
    EXPECT_STREQ(flashtile_status_name(77), "unknown status");
    EXPECT_STREQ(isa_name(isa::portable), "portable");
    EXPECT_STREQ(isa_name(isa::avx2), "avx2");
    EXPECT_STREQ(isa_name(isa::avx512), "avx512");
    EXPECT_STREQ(isa_name(isa::avx512_bf16), "avx512_bf16");
    EXPECT_STREQ(isa_name(isa::amx), "amx");
    EXPECT_STREQ(isa_name(isa::neon_bf16), "neon_bf16");
    EXPECT_TRUE(isa_available(isa::portable));
}

// A machine with the AVX-512 sets has what they build on.
TEST(Interface, IsasComeInOrder) {
    if (isa_available(isa::amx)) {
        EXPECT_TRUE(isa_available(isa::avx512));
    }
    if (isa_available(isa::avx512_bf16)) {
        EXPECT_TRUE(isa_available(isa::avx512));
    }
    if (isa_available(isa::avx512)) {
        EXPECT_TRUE(isa_available(isa::avx2));
    }
    for (const auto type : {FLASHTILE_FP32, FLASHTILE_FP16, FLASHTILE_BF16})
        EXPECT_TRUE(flashtile_isa_available(flashtile_isa_chosen(type)));
}

TEST(Interface, TilesServeTheSixteenBitTypes) {
    if (!isa_available(isa::amx)) GTEST_SKIP() << "this machine cannot run amx";
    if (std::getenv("FLASHTILE_ISA") != nullptr) GTEST_SKIP() << "FLASHTILE_ISA leaves no choice";
    EXPECT_EQ(flashtile_isa_chosen(FLASHTILE_BF16), FLASHTILE_ISA_AMX);
    EXPECT_EQ(flashtile_isa_chosen(FLASHTILE_FP16), FLASHTILE_ISA_AMX);
    EXPECT_NE(flashtile_isa_chosen(FLASHTILE_FP32), FLASHTILE_ISA_AMX);
}

TEST(Interface, OptionsMayBeNull) {
    Call call(small());
    ASSERT_EQ(flashtile_forward(nullptr, &call.inputs, &call.outputs), FLASHTILE_OK) << flashtile_last_error();
    const auto defaults = call.data.out.values();
    call.data.out.poison();
    ASSERT_EQ(call.forward(), FLASHTILE_OK);
    EXPECT_EQ(call.data.out.values(), defaults);
}

// What an older struct lacks keeps its default, whatever lies behind it in memory.
TEST(Interface, OlderCallersStructsAreShorter) {
    Call call(small());
    ASSERT_EQ(call.forward(), FLASHTILE_OK);
    const auto expected = call.data.out.values();
    call.data.out.poison();
    call.data.lse.poison();
    call.options.size = offsetof(flashtile_options, isa);
    call.options.isa = 1000;
    call.options.executor = reinterpret_cast<const flashtile_executor*>(8);
    call.options.workspace_size = 12345;
    call.inputs.size = offsetof(flashtile_inputs, alibi_slopes);
    call.inputs.alibi_slopes = call.inputs.bias = call.inputs.seqused_k = reinterpret_cast<const flashtile_tensor*>(8);
    call.inputs.max_seqlen_q = 3;
    call.outputs.size = offsetof(flashtile_forward_outputs, lse);
    ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
    EXPECT_EQ(call.data.out.values(), expected);
    EXPECT_TRUE(call.data.lse.poison_intact(std::vector<bool>(call.data.lse.size(), false)));
}

// More queries than keys: the first positions lie before the first key, in a chunk of their own.
TEST(Interface, AChunkOfAnyLengthIsAsGoodAsOneOfTheWhole) {
    conformance::Case c = small();
    c.seqlen_q = 30, c.seqlen_k = 20;
    const auto results = [&](std::int64_t chunk) {
        Call call(c);
        call.options.attention_chunk = chunk;
        EXPECT_EQ(call.forward(), FLASHTILE_OK);
        EXPECT_EQ(call.backward(), FLASHTILE_OK);
        return std::pair(call.data.out.values(), call.data.dk.values());
    };
    EXPECT_EQ(results(INT64_MAX), results(1000));
}

TEST(Interface, LastErrorAndLastRunAreTheThreadsOwn) {
    Call call(small());
    ASSERT_EQ(call.forward(), FLASHTILE_OK);
    const std::string ran = last_run();
    EXPECT_NE(ran.find("forward"), std::string::npos) << ran;
    call.options.softcap = -1.0f;
    ASSERT_EQ(call.forward(), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_EQ(last_run(), ran) << "a refused call did not run";
    const std::string message = flashtile_last_error();
    std::thread([] {
        EXPECT_STREQ(flashtile_last_error(), "");
        EXPECT_STREQ(flashtile_last_run(), "");
    }).join();
    EXPECT_EQ(flashtile_last_error(), message);
}

TEST(Interface, AnIsaThatTheMachineLacksIsRefused) {
    for (const isa which : kIsas) {
        Call call(small());
        call.options.isa = static_cast<std::int32_t>(which);
        const flashtile_status status = call.forward();
        if (isa_available(which)) {
            EXPECT_EQ(status, FLASHTILE_OK);
        } else {
            EXPECT_EQ(status, FLASHTILE_UNSUPPORTED);
            EXPECT_NE(std::strstr(flashtile_last_error(), isa_name(which)), nullptr) << flashtile_last_error();
            EXPECT_TRUE(call.outputs_untouched());
        }
    }
}

TEST(Interface, TheCallersWorkspaceIsUsed) {
    conformance::ProblemData data(small());
    flashtile::options o = data.options(isa::automatic);
    const Outputs expected = run(data, o);
    o.workspace_size = std::max(forward_workspace(o, data.q.view(), data.k.view(), data.v.view(), data.out.view()),
                                backward_workspace(o, data.q.view(), data.k.view(), data.v.view(), data.gradients()));
    constexpr std::size_t band = 64;
    std::vector<unsigned char> memory(o.workspace_size + 2 * band + 64, 0xAB);
    auto* base = memory.data() + band;
    while (reinterpret_cast<std::uintptr_t>(base) % 64 != 0) ++base;
    o.workspace = base;
    EXPECT_TRUE(run(data, o) == expected);
    for (const unsigned char* p = memory.data(); p < base; ++p) ASSERT_EQ(*p, 0xAB) << "written before the workspace";
    for (const unsigned char* p = base + o.workspace_size; p < memory.data() + memory.size(); ++p)
        ASSERT_EQ(*p, 0xAB) << "written past the workspace";
    EXPECT_NE(std::count(base, base + o.workspace_size, 0xAB), static_cast<std::ptrdiff_t>(o.workspace_size));
}

// ctest runs these two with the variables set.
TEST(Environment, ChoosesTheIsa) {
    const char* wish = std::getenv("FLASHTILE_ISA");
    if (wish == nullptr) GTEST_SKIP() << "FLASHTILE_ISA is not set";
    EXPECT_STREQ(flashtile_isa_name(flashtile_isa_chosen(FLASHTILE_BF16)), wish);
    Call call(small());
    ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
    EXPECT_EQ(std::string(last_run()).rfind(std::string("cpu ") + wish + " ", 0), 0u) << last_run();
}

TEST(Environment, ChoosesTheThreads) {
    const char* wish = std::getenv("FLASHTILE_THREADS");
    if (wish == nullptr) GTEST_SKIP() << "FLASHTILE_THREADS is not set";
    EXPECT_EQ(get_threads(), std::atoi(wish));
}

}  // namespace
}  // namespace flashtile::unit
