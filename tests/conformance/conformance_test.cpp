// conformance_test.cpp: every case of the list, and random ones, on every instruction set that this machine has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "conformance/case_list.h"
#include "conformance/judge.h"

namespace flashtile::conformance {
namespace {

constexpr std::uint64_t kRandomSeed = 20260700;
constexpr std::uint64_t kRandomCases = 700;

// FLASHTILE_TEST_EVERY=n takes every n-th case: for sanitizers and emulators, where one takes 5 to 20 times as long.
std::size_t every() {
    const char* text = std::getenv("FLASHTILE_TEST_EVERY");
    return text == nullptr ? 1 : std::stoul(text);
}

class Conformance : public testing::TestWithParam<isa> {
protected:
    void SetUp() override {
        if (!available(GetParam())) GTEST_SKIP() << "this machine cannot run " << flashtile::name(GetParam());
    }

    // Cases whose name starts with `prefix`.
    void run(const std::string& prefix) {
        std::size_t count = 0;
        for (const Case& c : named_cases())
            if (c.name.rfind(prefix, 0) == 0 && count++ % every() == 0) check(c, "--case=" + c.name);
        EXPECT_GT(count, 0u);
    }

    void check(const Case& c, const std::string& selection) {
        SCOPED_TRACE(c.name + ": " + to_string(c) + "\nreproduce: flashtile verify " + selection +
                     " --isa=" + flashtile::name(GetParam()));
        try {
            const Verdict verdict = judge(c, GetParam());
            EXPECT_TRUE(verdict.ok()) << verdict.to_string();
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
    }
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
TEST_P(Conformance, Packed) {
    run("packed/");
}
TEST_P(Conformance, NothingToDo) {
    run("nothing/");
}
TEST_P(Conformance, Magnitudes) {
    run("magnitude/");
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
    for (std::uint64_t seed = kRandomSeed; seed < kRandomSeed + kRandomCases; seed += every())
        check(random_case(seed), "--random=1 --seed=" + std::to_string(seed));
}

std::string name_of(const testing::TestParamInfo<isa>& info) {
    return flashtile::name(info.param);
}

// The prefix is what ctest's shards filter by.
INSTANTIATE_TEST_SUITE_P(portable, Conformance, testing::Values(isa::portable), name_of);
INSTANTIATE_TEST_SUITE_P(avx2, Conformance, testing::Values(isa::avx2), name_of);
INSTANTIATE_TEST_SUITE_P(avx512, Conformance, testing::Values(isa::avx512), name_of);
INSTANTIATE_TEST_SUITE_P(avx512_bf16, Conformance, testing::Values(isa::avx512_bf16), name_of);

}  // namespace
}  // namespace flashtile::conformance
