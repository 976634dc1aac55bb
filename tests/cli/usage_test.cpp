// usage_test.cpp: the command line apart from its commands' work: what it does with words that it does not know, with
// the environment, and with a stdout that cannot be written; and what `info` says.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "process.h"

namespace flashtile::tests {
namespace {

void expect_usage_error(const Command& arguments, const std::string& message) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Ending ending = flashtile(arguments);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_EQ(ending.out, "");
    EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
}

TEST(Usage, UnknownWordsAreRefused) {
    expect_usage_error({}, "A subcommand is required");
    expect_usage_error({"attention"}, "the command is 'attention', allowed is info, attend, verify");
    expect_usage_error({"--frobnicate"}, "A subcommand is required");
    expect_usage_error({"info", "--frobnicate"}, "--frobnicate");
    expect_usage_error({"info", "more"}, "more");
    expect_usage_error({"verify", "--frobnicate"}, "--frobnicate");
    expect_usage_error({"bench", "--frobnicate"}, "--frobnicate");
    expect_usage_error({"attend"}, "--q is required");
    expect_usage_error({"attend", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"}, "--out is required");
}

TEST(Usage, NumbersThatAreTooSmallAreToldTheSmallest) {
    expect_usage_error({"verify", "--batch=-1"}, "--batch: is -1, allowed is a whole number of at least 0\n");
    expect_usage_error({"verify", "--lengths-q=5,-2"}, "is -2, allowed is a whole number of at least 0\n");
    expect_usage_error({"verify", "--heads=0"}, "--heads: is 0, allowed is a whole number of at least 1\n");
    expect_usage_error({"verify", "--heads=2.5"}, "--heads: is 2.5, allowed is a whole number of at least 1\n");
    expect_usage_error({"verify", "--random=99999999999999999999"}, "allowed is a number that fits 64 bits\n");
    expect_usage_error({"bench", "--minutes=0"}, "is 0, allowed is a number above 0\n");
}

TEST(Usage, VersionIsThatOfInfo) {
    const Ending version = flashtile({"--version"});
    EXPECT_EQ(version.exit_code, 0);
    const auto info = nlohmann::json::parse(flashtile({"info", "--json"}).out);
    EXPECT_EQ(version.out, info.at("version").get<std::string>() + "\n");
}

TEST(Usage, AFullDiskBehindStdoutIsNoSuccess) {
    const std::string program = FLASHTILE_PROGRAM;
    for (const char* arguments : {" info --json", " info", " --help", " verify --seqlen-q=4"}) {
        const Ending ending = run({"sh", "-c", program + arguments + " > /dev/full"});
        EXPECT_EQ(ending.exit_code, 2) << arguments;
        EXPECT_NE(ending.err.find("standard output cannot be written"), std::string::npos) << ending.err;
    }
}

TEST(Info, JsonSaysWhatThisMachineCanRun) {
    const Ending ending = flashtile({"info", "--json"});
    ASSERT_EQ(ending.exit_code, 0);
    EXPECT_EQ(ending.err, "");
    const auto info = nlohmann::json::parse(ending.out);
    const auto& cpu = info.at("devices").at(0);
    EXPECT_EQ(cpu.at("device"), "cpu");
    EXPECT_NE(cpu.at("name"), "");
    EXPECT_GE(cpu.at("threads").get<int>(), 1);
    EXPECT_GT(cpu.at("memory_available").get<std::uint64_t>(), 1U << 20);
    EXPECT_TRUE(cpu.at("features").is_array());
    std::vector<std::string> names;
    for (const auto& set : info.at("isas")) names.push_back(set.at("name"));
    EXPECT_EQ(names, (std::vector<std::string>{"portable", "avx2", "avx512", "avx512_bf16", "amx"}));
    EXPECT_EQ(info.at("isas").at(0).at("available"), true);
    for (const char* type : {"fp32", "fp16", "bf16"}) EXPECT_TRUE(info.at("chosen").contains(type));
}

TEST(Info, ObeysTheEnvironment) {
    const Command json = flashtile_command({"info", "--json"});
    const auto with = [&](const std::string& setting) {
        Command command = {"env", setting};
        command.insert(command.end(), json.begin(), json.end());
        return run(command);
    };
    const auto portable = nlohmann::json::parse(with("FLASHTILE_ISA=portable").out);
    EXPECT_EQ(portable.at("chosen").at("fp32"), "portable");
    EXPECT_EQ(portable.at("chosen").at("bf16"), "portable");
    const auto three = nlohmann::json::parse(with("FLASHTILE_THREADS=3").out);
    EXPECT_EQ(three.at("devices").at(0).at("threads"), 3);
}

TEST(Info, APlanSaysWhyCandidatesWerePassedOver) {
    const Ending ending = flashtile({"info", "--plan", "--device-name=H200", "--no-registers", "--mask"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_NE(ending.out.find("\n  passed over       forward_sm80: a more special one serves\n"), std::string::npos)
        << ending.out;
    EXPECT_NE(ending.out.find("\n  passed over       backward_sm90: a boolean mask\n"), std::string::npos)
        << ending.out;
}

}  // namespace
}  // namespace flashtile::tests
