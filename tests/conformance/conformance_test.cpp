// conformance_test.cpp: every case of the list, and random ones, on every instruction set and GPU that this machine
// has.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "conformance/case_list.h"
#include "conformance/judge.h"
#include "conformance/share.h"

namespace flashtile::conformance {
namespace {

constexpr std::uint64_t kRandomSeed = 20260700;
constexpr std::uint64_t kRandomCases = 700;

class Conformance : public testing::TestWithParam<Target> {
protected:
    void SetUp() override {
        if (const std::string reason = why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    }

    // Cases whose name starts with `prefix`.
    void run(const std::string& prefix) {
        std::size_t count = 0;
        for (const Case& c : named_cases())
            if (c.name.rfind(prefix, 0) == 0 && share_.has(count++)) check(c, "--case=" + c.name);
        EXPECT_GT(count, 0u);
    }

    void check(const Case& c, const std::string& selection) {
        SCOPED_TRACE(c.name + ": " + to_string(c) + "\nreproduce: flashtile verify " + selection +
                     (GetParam().on_gpu() ? " --device=" : " --isa=") + name(GetParam()));
        try {
            const Verdict verdict = judge(c, GetParam());
            EXPECT_TRUE(verdict.ok()) << verdict.to_string();
            if (!verdict.refused.empty()) std::cout << c.name << " refused: " << verdict.refused << '\n';
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
    }

    const Share share_ = share_of_list();
};

TEST_P(Conformance, Lengths) {
    run("length/");
}
TEST_P(Conformance, UnequalLengths) {
    run("unequal/");
}
TEST_P(Conformance, HeadDims) {
    run("head_dim/");
}
TEST_P(Conformance, Heads) {
    run("heads/");
}
TEST_P(Conformance, OptionPairs) {
    run("options/");
}
TEST_P(Conformance, EmptyRows) {
    run("empty_rows/");
}
TEST_P(Conformance, HidingBias) {
    run("hiding_bias/");
}
TEST_P(Conformance, LargeBias) {
    run("large_bias/");
}
TEST_P(Conformance, BiasBlocks) {
    run("bias_blocks/");
}
TEST_P(Conformance, Packed) {
    run("packed/");
}
TEST_P(Conformance, NothingToDo) {
    run("nothing/");
}
TEST_P(Conformance, Magnitudes) {
    run("magnitude/");
}
TEST_P(Conformance, JumpingScores) {
    run("jumping_scores/");
}
TEST_P(Conformance, Scale) {
    run("scale/");
}
TEST_P(Conformance, Softcap) {
    run("softcap/");
}
TEST_P(Conformance, Dropout) {
    run("dropout/");
}
TEST_P(Conformance, Memory) {
    run("memory/");
}
TEST_P(Conformance, LongSequences) {
    run("long/");
}

TEST_P(Conformance, Random) {
    for (std::uint64_t n = 0; n < kRandomCases; ++n)
        if (share_.has(n)) check(random_case(kRandomSeed + n), "--random=1 --seed=" + std::to_string(kRandomSeed + n));
}

std::string name_of(const testing::TestParamInfo<Target>& info) {
    return name(info.param);
}

// The prefix is what ctest's shards filter by.
INSTANTIATE_TEST_SUITE_P(portable, Conformance, testing::Values(Target(isa::portable)), name_of);
INSTANTIATE_TEST_SUITE_P(avx2, Conformance, testing::Values(Target(isa::avx2)), name_of);
INSTANTIATE_TEST_SUITE_P(avx512, Conformance, testing::Values(Target(isa::avx512)), name_of);
INSTANTIATE_TEST_SUITE_P(avx512_bf16, Conformance, testing::Values(Target(isa::avx512_bf16)), name_of);
INSTANTIATE_TEST_SUITE_P(amx, Conformance, testing::Values(Target(isa::amx)), name_of);
INSTANTIATE_TEST_SUITE_P(cuda, Conformance, testing::Values(cuda_target()), name_of);

}  // namespace
}  // namespace flashtile::conformance
