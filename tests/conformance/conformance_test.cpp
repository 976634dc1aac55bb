// conformance_test.cpp: every case of the list, and random ones, on every instruction set and GPU that this machine
// has.
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/case_list.h"
#include "conformance/judge.h"
#include "conformance/share.h"

namespace flashtile::conformance {
namespace {

constexpr std::uint64_t kRandomSeed = 20260700;
constexpr std::uint64_t kRandomCases = 700;

// A family is what stands before the '/' of its cases' names: "length" of "length/17". They are taken from the list
// itself, so that a new one runs without being named here.
std::string family_of(const Case& c) {
    return c.name.substr(0, c.name.find('/'));
}

std::vector<std::string> families() {
    std::set<std::string> names;
    for (const Case& c : named_cases()) names.insert(family_of(c));
    return {names.begin(), names.end()};
}

void check(const Case& c, const Target& target, const std::string& selection) {
    SCOPED_TRACE(c.name + ": " + to_string(c) + "\nreproduce: flashtile verify " + selection +
                 (target.on_gpu() ? " --device=" : " --isa=") + name(target));
    try {
        const Verdict verdict = judge(c, target);
        EXPECT_TRUE(verdict.ok()) << verdict.to_string();
        if (!verdict.refused.empty()) std::cout << c.name << " refused: " << verdict.refused << '\n';
    } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
    }
}

class NamedCases : public testing::TestWithParam<std::tuple<Target, std::string>> {};

TEST_P(NamedCases, AreRight) {
    const auto& [target, family] = GetParam();
    if (const std::string reason = why_not(target); !reason.empty()) GTEST_SKIP() << reason;
    const Share share = share_of_list();
    std::size_t count = 0;
    for (const Case& c : named_cases())
        if (family_of(c) == family && share.has(count++)) check(c, target, "--case=" + c.name);
}

class RandomCases : public testing::TestWithParam<Target> {};

TEST_P(RandomCases, AreRight) {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    const Share share = share_of_list();
    for (std::uint64_t n = 0; n < kRandomCases; ++n)
        if (share.has(n))
            check(random_case(kRandomSeed + n), GetParam(), "--random=1 --seed=" + std::to_string(kRandomSeed + n));
}

std::string family_name(const testing::TestParamInfo<std::tuple<Target, std::string>>& info) {
    return std::get<1>(info.param);
}

std::string random_name(const testing::TestParamInfo<Target>&) {
    return "random";
}

// The first word is what ctest's shards filter by; the test conformance.every_target_has_a_shard finds one that they
// lack.
#define FLASHTILE_CONFORMANCE(word, target)                                                                          \
    INSTANTIATE_TEST_SUITE_P(word, NamedCases,                                                                       \
                             testing::Combine(testing::Values(target), testing::ValuesIn(families())), family_name); \
    INSTANTIATE_TEST_SUITE_P(word, RandomCases, testing::Values(target), random_name)

FLASHTILE_CONFORMANCE(portable, Target(isa::portable));
FLASHTILE_CONFORMANCE(avx2, Target(isa::avx2));
FLASHTILE_CONFORMANCE(avx512, Target(isa::avx512));
FLASHTILE_CONFORMANCE(avx512_bf16, Target(isa::avx512_bf16));
FLASHTILE_CONFORMANCE(amx, Target(isa::amx));
FLASHTILE_CONFORMANCE(cuda, cuda_target());

}  // namespace
}  // namespace flashtile::conformance
