// explained_test.cpp: an explanation holds for what it names and up to what it allows.
#include "cuda/variants/explained.h"

#include <gtest/gtest.h>

#include <sstream>

namespace flashtile::variants {
namespace {

Explained read(const std::string& text) {
    std::istringstream file(text);
    return Explained(file);
}

gpu::CompilerReport spilling(int bytes) {
    gpu::CompilerReport report;
    report.registers = 255;
    report.spill_bytes = bytes;
    return report;
}

TEST(Explained, AllowsSoManyBytesAndNoMore) {
    Explained list = read("# a comment\n\nsm_8[06] .*d=256 <= 24 # outside the loop\n");
    EXPECT_TRUE(list.excuses("sm_80 backward d=256", spilling(24)));
    EXPECT_FALSE(list.excuses("sm_80 backward d=256", spilling(25)));
    EXPECT_FALSE(list.excuses("sm_90a backward d=256", spilling(24)));
}

TEST(Explained, NamesLinesThatExcuseNothing) {
    Explained list = read("forward <= 8 # one\nbackward <= 8 # two\n");
    EXPECT_EQ(list.unused().size(), 2U);
    EXPECT_TRUE(list.excuses("backward", spilling(8)));
    EXPECT_EQ(list.unused(), std::vector<std::string>{"forward <= 8 # one"});
    EXPECT_FALSE(list.excuses("forward", spilling(9)));
    EXPECT_EQ(list.unused().size(), 1U);
}

TEST(Explained, RefusesALineWithoutBytesOrReason) {
    EXPECT_THROW(read("forward # why\n"), std::runtime_error);
    EXPECT_THROW(read("forward <= 8\n"), std::runtime_error);
    EXPECT_THROW(read("forward <= many # why\n"), std::runtime_error);
}

}  // namespace
}  // namespace flashtile::variants
