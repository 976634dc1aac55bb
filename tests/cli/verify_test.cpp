// verify_test.cpp: `flashtile verify`: its report, its exit codes, and the line that reproduces a failure.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "process.h"

namespace flashtile::tests {
namespace {

TEST(Verify, RandomProblemsPassAndRepeat) {
    const Command command = {"verify", "--random=20", "--seed=1", "--json"};
    const Ending ending = flashtile(command);
    ASSERT_EQ(ending.exit_code, 0) << ending.out;
    EXPECT_EQ(ending.err, "");
    const auto report = nlohmann::json::parse(ending.out);
    EXPECT_EQ(report.at("problems"), 20);
    EXPECT_EQ(report.at("failed"), 0);
    std::set<std::string> problems;
    for (const auto& result : report.at("results")) {
        problems.insert(result.at("problem"));
        EXPECT_EQ(result.at("ok"), true);
        std::set<std::string> tensors;
        for (const auto& comparison : result.at("comparisons")) {
            tensors.insert(comparison.at("tensor"));
            EXPECT_LE(comparison.at("max_error").get<double>(), comparison.at("max_allowed").get<double>());
            EXPECT_LE(comparison.at("rms_error").get<double>(), comparison.at("rms_allowed").get<double>());
        }
        for (const char* tensor : {"out", "lse"}) EXPECT_TRUE(tensors.contains(tensor)) << tensor;
        const std::string problem = result.at("problem");
        bool forward_only = false;  // what backward does not take
        for (const char* option : {"cache-rows", "pages-of=", "used_q=", "first_k=", " tree", " e4m3", " out-in-fp32"})
            forward_only |= problem.find(option) != std::string::npos;
        for (const char* tensor : {"dq", "dk", "dv"}) EXPECT_EQ(tensors.contains(tensor), !forward_only) << problem;
    }
    EXPECT_EQ(problems.size(), 20U);
    const auto again = nlohmann::json::parse(flashtile(command).out);
    for (std::size_t n = 0; n < 20; ++n)
        EXPECT_EQ(again.at("results").at(n).at("problem"), report.at("results").at(n).at("problem"));
}

TEST(Verify, OneProblemIsAskedForByItsSeed) {
    const auto twenty = nlohmann::json::parse(flashtile({"verify", "--random=3", "--seed=17", "--json"}).out);
    const auto one = nlohmann::json::parse(flashtile({"verify", "--random=1", "--seed=19", "--json"}).out);
    EXPECT_EQ(one.at("results").at(0).at("problem"), twenty.at("results").at(2).at("problem"));
}

TEST(Verify, PrintsErrorAndBound) {
    const Ending ending = flashtile(
        {"verify", "--seqlen-q=50", "--head-dim=40", "--heads=4", "--kv-heads=2", "--causal", "--dtype=bf16"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const std::string number = "[0-9.e+-]+";
    const std::string pair = number + " \\(allowed " + number + "\\)";
    for (const char* tensor : {"out", "lse", "dq", "dk", "dv"}) {
        const std::regex line("  " + std::string(tensor) + " +max error " + pair + ", rms " + pair + "\n");
        EXPECT_TRUE(std::regex_search(ending.out, line)) << tensor << '\n' << ending.out;
    }
    EXPECT_NE(ending.out.find("1 of 1 problems right"), std::string::npos) << ending.out;
}

TEST(Verify, EveryInstructionSetThatInfoLists) {
    const auto info = nlohmann::json::parse(flashtile({"info", "--json"}).out);
    for (const auto& set : info.at("isas")) {
        const std::string name = set.at("name");
        const Ending ending = flashtile({"verify", "--random=5", "--seed=1", "--json", "--isa=" + name});
        if (!set.at("available")) {
            EXPECT_EQ(ending.exit_code, 2) << name;
            continue;
        }
        EXPECT_EQ(ending.exit_code, 0) << name << ending.err << ending.out;
        const auto report = nlohmann::json::parse(ending.out);
        for (const auto& result : report.at("results"))
            EXPECT_NE(result.at("ran").get<std::string>().find("cpu " + name + " "), std::string::npos)
                << result.at("ran");
    }
}

TEST(Verify, TakesWhatServingAsksFor) {
    const Ending ending =
        flashtile({"verify", "--batch=2", "--heads=4", "--kv-heads=2", "--seqlen-q=3", "--seqlen-k=300", "--head-dim=8",
                   "--page-size=16", "--seqused-k=300,17", "--seqused-q=1,3", "--first-k=5,0", "--sinks=inputs",
                   "--tree", "--attention-chunk=200", "--num-splits=2", "--dtype=bf16"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const char* part : {"pages-of=16", "used_k=300,17", "used_q=1,3", "first_k=5,0", "sinks", "tree", "chunk=200",
                             "splits=2", "1 of 1 problems right"})
        EXPECT_NE(ending.out.find(part), std::string::npos) << part << "\n" << ending.out;
}

TEST(Verify, TakesFunctions) {
    const Ending ending = flashtile({"verify", "--seqlen-q=40", "--heads=2", "--head-dim=16", "--dtype=fp32",
                                     "--score-function=s + table[h, min(abs(i - j), 30)]",
                                     "--mask-function=document[b, i] == document[b, j]", "--tensor-gradients"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const char* part : {"score_function=", "mask_function=", "  dtensors max error", "1 of 1 problems right"})
        EXPECT_NE(ending.out.find(part), std::string::npos) << part << "\n" << ending.out;
}

TEST(Verify, RefusesBadProblems) {
    const auto expect_ending = [](const Ending& ending, const std::string& flag, const std::string& message) {
        EXPECT_EQ(ending.exit_code, 2) << flag;
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
    };
    const auto expect_refused = [&](const std::string& flag, const std::string& message) {
        expect_ending(flashtile({"verify", flag}), flag, message);
    };
    // By the library, when the oracle has already answered: a small problem.
    const auto expect_refused_late = [&](const std::string& flag, const std::string& message) {
        expect_ending(flashtile({"verify", "--seqlen-q=4", "--seqlen-k=4", flag}), flag, message);
    };
    expect_refused_late("--scale=nan", "scale is nan");
    expect_refused_late("--dropout=1", "dropout is 1");
    expect_refused_late("--head-dim=513", "513");
    expect_refused("--bias=bhkq", "--bias");
    expect_refused("--case=no/such/case", "--case");
    expect_refused("--random=0", "--random");
    expect_refused("--seed=-1", "--seed");
    expect_refused("--first-k=1,2", "--first-k: has 2 entries, allowed is one for each sequence");
}

TEST(Verify, RefusesFlagsThatMadeProblemsWouldNotHear) {
    for (const std::string source : {"--random=1", "--case=options/causal"})
        for (const char* flag : {"--batch=2", "--head-dim=8", "--causal", "--dtype=bf16", "--lengths-q=5",
                                 "--threads=1", "--mask=bhqk", "--deterministic"}) {
            const Ending ending = flashtile({"verify", source, flag});
            const std::string name = std::string(flag).substr(0, std::string(flag).find('='));
            EXPECT_EQ(ending.exit_code, 2) << source << flag;
            EXPECT_EQ(ending.err.find(name + ": is given beside " + source.substr(0, source.find('='))), 0U)
                << ending.err;
        }
    EXPECT_EQ(flashtile({"verify", "--case=options/causal", "--seed=2"}).exit_code, 2);
    EXPECT_EQ(flashtile({"verify", "--random=1", "--seed=2", "--isa=portable", "--json"}).exit_code, 0);
}

#ifdef FLASHTILE_WRONG_LIBRARY

Command with_wrong_library(const Command& command) {
    // The address sanitizer, where it is in use, wants to be first, and looks for leaks in the shell too.
    Command result = {"env", std::string("LD_PRELOAD=") + FLASHTILE_WRONG_LIBRARY,
                      "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};
    result.insert(result.end(), command.begin(), command.end());
    return result;
}

TEST(Verify, AWrongResultIsExitCode1WithTheLineThatReproducesIt) {
    const Ending ending = run(with_wrong_library(
        flashtile_command({"verify", "--seqlen-q=20", "--heads=2", "--head-dim=16", "--causal", "--window=5,-1"})));
    EXPECT_EQ(ending.exit_code, 1) << ending.err;
    EXPECT_NE(ending.out.find("WRONG"), std::string::npos) << ending.out;
    EXPECT_NE(ending.out.find("0 of 1 problems right"), std::string::npos) << ending.out;
    std::smatch line;
    ASSERT_TRUE(std::regex_search(ending.out, line, std::regex("reproduce: flashtile (.*)\n"))) << ending.out;
    const std::string again = std::string(FLASHTILE_PROGRAM).append(" ").append(line[1].str());
    EXPECT_EQ(run(with_wrong_library({"sh", "-c", again})).out, ending.out);
    EXPECT_EQ(run({"sh", "-c", again}).exit_code, 0) << again;
}

TEST(Bench, AWrongResultIsExitCode1AndGetsNoSpeed) {
    const Ending ending =
        run(with_wrong_library(flashtile_command({"bench", "forward", "--seqlen=64", "--head-dim=16", "--heads=2",
                                                  "--batch=1", "--causal=0", "--repeats=1", "--threads=1"})));
    EXPECT_EQ(ending.exit_code, 1) << ending.err;
    EXPECT_NE(ending.out.find("WRONG RESULT, no speed: flashtile"), std::string::npos) << ending.out;
    const Ending decode =
        run(with_wrong_library(flashtile_command({"bench", "decode", "--seqlen=64", "--head-dim=16", "--heads=2",
                                                  "--kv-heads=1", "--repeats=1", "--threads=1"})));
    EXPECT_EQ(decode.exit_code, 1) << decode.err;
    EXPECT_NE(decode.out.find("WRONG RESULT, no speed: flashtile"), std::string::npos) << decode.out;
}

#endif

}  // namespace
}  // namespace flashtile::tests
