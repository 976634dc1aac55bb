// compiler_report_test.cpp: on logs as ptxas 13 writes them.
#include "cuda/jit/compiler_report.h"

#include <gtest/gtest.h>

namespace flashtile::gpu {
namespace {

constexpr const char* kClean =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'flashtile_kernel' for 'sm_80'\n"
    "ptxas info    : Function properties for flashtile_kernel\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 1 barriers, 1444 bytes cmem[0]\n";

TEST(CompilerReport, ReadsACleanLog) {
    const CompilerReport report = read_report(kClean);
    EXPECT_TRUE(report.clean());
    EXPECT_EQ(report.registers, 168);
}

TEST(CompilerReport, FindsSpills) {
    std::string log = kClean;
    log.replace(log.find("0 bytes stack frame, 0 bytes spill stores, 0"), 44,
                "40 bytes stack frame, 12 bytes spill stores, 8");
    const CompilerReport report = read_report(log);
    EXPECT_FALSE(report.clean());
    EXPECT_EQ(report.stack_bytes, 40);
    EXPECT_EQ(report.spill_bytes, 20);
}

TEST(CompilerReport, FindsWarningsAndSerialisedProducts) {
    EXPECT_FALSE(read_report(std::string(kClean) + "kernel.cu(3): warning #177-D: variable was declared\n").clean());
    EXPECT_FALSE(read_report(std::string(kClean) +
                             "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are "
                             "serialized due to insufficient register resources\n")
                     .clean());
}

TEST(CompilerReport, ALogThatSaysNothingIsNotClean) {
    EXPECT_FALSE(read_report("").clean());
}

}  // namespace
}  // namespace flashtile::gpu
