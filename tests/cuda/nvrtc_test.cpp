// nvrtc_test.cpp: the real compiler, where this machine has one: a program compiles, and one with a mistake is an error
// that names it.
#include "cuda/jit/nvrtc.h"

#include <gtest/gtest.h>

#include "cuda/jit/compile.h"
#include "cuda/plan/plan.h"

namespace flashtile::gpu {
namespace {

struct NvrtcTest : testing::Test {
    void SetUp() override {
        if (!why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
    }
    Program program{
        {"main.cu", "#include \"one/header.h\"\nextern \"C\" __global__ void f(int* x) { *x = kNumber; }\n"},
        {{"one/header.h", "constexpr int kNumber = 7;\n"}},
        {"--gpu-architecture=sm_" + std::to_string(80), "-std=c++20"}};
};

TEST_F(NvrtcTest, MakesMachineCode) {
    const Nvrtc::Result result = nvrtc().compile(program);
    ASSERT_TRUE(result.ok) << result.log;
    EXPECT_TRUE(
        result.image.starts_with("\x7f"
                                 "ELF"));
    EXPECT_GE(nvrtc().version(), 12000);
    EXPECT_NE(std::find(nvrtc().architectures().begin(), nvrtc().architectures().end(), 80),
              nvrtc().architectures().end());
}

TEST_F(NvrtcTest, MakesPtx) {
    program.ptx = true;
    program.options.front() = "--gpu-architecture=compute_80";
    const Nvrtc::Result result = nvrtc().compile(program);
    ASSERT_TRUE(result.ok) << result.log;
    EXPECT_NE(result.image.find(".target sm_80"), std::string::npos);
}

// No variant of `make check-kernels` holds it: it has none.
TEST_F(NvrtcTest, CompilesTheDropoutMask) {
    Problem p;
    p.batch = p.heads = p.seqlen_q = p.seqlen_k = 1;
    for (const int architecture : {80, 90, 120}) {
        const std::string log =
            compile(plan_dropout_mask(p, known_device("A100-80")).main().config, architecture, true).log;
        EXPECT_NE(log.find(" 0 bytes spill stores"), std::string::npos) << log;
    }
}

TEST_F(NvrtcTest, SaysWhatIsWrong) {
    program.headers.front().text = "constexpr int kNumber = misspelt;\n";
    const Nvrtc::Result result = nvrtc().compile(program);
    EXPECT_FALSE(result.ok);
    EXPECT_NE(result.log.find("one/header.h(1)"), std::string::npos) << result.log;
    EXPECT_NE(result.log.find("misspelt"), std::string::npos) << result.log;
}

}  // namespace
}  // namespace flashtile::gpu
