// conformance_test.cpp: every case of the list, and random ones, on every instruction set and GPU that this machine
// has. The instruction sets share a case's reference, which takes most of the time; FLASHTILE_TEST_ISA picks one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/case_list.h"
#include "conformance/judge.h"
#include "conformance/share.h"

namespace flashtile::conformance {
namespace {

constexpr std::uint64_t kRandomSeed = 20260700;
constexpr std::uint64_t kRandomCases = 700;

struct Entry {
    Case problem;
    std::string selection;  // how `flashtile verify` is told to take it
};

void PrintTo(const Entry& entry, std::ostream* out) {
    *out << entry.problem.name;
}

// What stands before the '/' of a case's name: "length" of "length/17".
std::string family_of(const Case& c) {
    return c.name.substr(0, c.name.find('/'));
}

// This process's share of each family, and of the random cases.
std::vector<Entry> entries() {
    const Share share = share_of_list();
    std::vector<Entry> result;
    std::map<std::string, std::size_t> count;
    for (const Case& c : named_cases())
        if (share.has(count[family_of(c)]++)) result.push_back({c, "--case=" + c.name});
    for (std::uint64_t n = 0; n < kRandomCases; ++n) {
        const std::uint64_t seed = kRandomSeed + n;
        if (share.has(n)) result.push_back({random_case(seed), "--random=1 --seed=" + std::to_string(seed)});
    }
    return result;
}

// GoogleTest takes letters, digits and '_'.
std::string entry_name(const testing::TestParamInfo<Entry>& info) {
    std::string name = info.param.problem.name;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
    return name;
}

void check(const Judge& judge, const Entry& entry, const Target& target) {
    SCOPED_TRACE(entry.problem.name + ": " + to_string(entry.problem) + "\nreproduce: flashtile verify " +
                 entry.selection + (target.on_gpu() ? " --device=" : " --isa=") + name(target));
    try {
        const Verdict verdict = judge.run_on(target);
        EXPECT_TRUE(verdict.ok()) << verdict.to_string();
        if (!verdict.refused.empty()) std::cout << entry.problem.name << " refused: " << verdict.refused << '\n';
    } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
    }
}

// The instruction sets to run on. One that is asked for by name is among them where this machine lacks it, too.
std::vector<Target> cpu_targets() {
    const char* asked = std::getenv("FLASHTILE_TEST_ISA");
    std::vector<Target> result;
    for (const Target target : kIsas)
        if (asked != nullptr ? name(target) == asked : why_not(target).empty()) result.push_back(target);
    if (result.empty())
        throw std::runtime_error(std::string("FLASHTILE_TEST_ISA is '") + asked + "', and no such name");
    return result;
}

class CpuCases : public testing::TestWithParam<Entry> {};

TEST_P(CpuCases, AreRight) {
    static const std::vector<Target> targets = cpu_targets();
    if (const std::string reason = why_not(targets.front()); !reason.empty()) GTEST_SKIP() << reason;
    const Judge judge(GetParam().problem);
    for (const Target& target : targets) check(judge, GetParam(), target);
}

class GpuCases : public testing::TestWithParam<Entry> {};

TEST_P(GpuCases, AreRight) {
    const Target target = cuda_target();
    if (const std::string reason = why_not(target); !reason.empty()) GTEST_SKIP() << reason;
    check(Judge(GetParam().problem), GetParam(), target);
}

class InstructionSet : public testing::TestWithParam<isa> {};

// Says which of them CpuCases ran on.
TEST_P(InstructionSet, SolvesACase) {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    const Case& first = named_cases().front();
    check(Judge(first), {first, "--case=" + first.name}, GetParam());
}

std::string isa_test_name(const testing::TestParamInfo<isa>& info) {
    return name(info.param);
}

// The first word is what the tests of ctest filter by; conformance.every_target_has_a_test finds one that they lack.
INSTANTIATE_TEST_SUITE_P(cpu, CpuCases, testing::ValuesIn(entries()), entry_name);
INSTANTIATE_TEST_SUITE_P(cuda, GpuCases, testing::ValuesIn(entries()), entry_name);
INSTANTIATE_TEST_SUITE_P(has, InstructionSet, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace flashtile::conformance
