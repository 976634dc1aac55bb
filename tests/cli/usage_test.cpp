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

TEST(Usage, FlagsAreSpelledAsInOtherCommands) {
    const Command compile = {"compile", "--arch=sm_80", "--output=bundle"};
    const auto with = [&](const char* flag) {
        Command command = compile;
        command.emplace_back(flag);
        return command;
    };
    expect_usage_error(with("--dtype=fp99"), "is fp99, allowed is fp32");
    expect_usage_error(with("--head-dim=wide"), "is wide, allowed is d, or d and dv as 192x128");
    const Command plan = {"info", "--plan", "--device-name=H200", "--no-registers", "--seqused"};
    Command alike = plan;
    alike.back() = "--seqused-k";
    EXPECT_NE(flashtile(alike).out, "");
    EXPECT_EQ(flashtile(alike).out, flashtile(plan).out);
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
    EXPECT_EQ(names, (std::vector<std::string>{"portable", "avx2", "avx512", "avx512_bf16", "amx", "neon_bf16"}));
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
    const Ending ending =
        flashtile({"info", "--plan", "--device-name=H200", "--no-registers", "--mask", "--softcap=30"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_NE(ending.out.find("\n  passed over       forward_sm80: a more special one serves\n"), std::string::npos)
        << ending.out;
    EXPECT_NE(ending.out.find("\n  passed over       backward_sm90: softcap with ALiBi, a bias or a mask"),
              std::string::npos)
        << ending.out;
}

TEST(Info, APlanSaysWhatFunctionsCost) {
    Command plan = {"info",
                    "--plan",
                    "--device=cpu",
                    "--heads=4",
                    "--seqlen-q=64",
                    "--score-function=s - slope[h] * abs(i - j)",
                    "--mask-function=document[0, i] == document[0, j] && j < 2 * h",
                    "--function-tensor=slope=fp32:4",
                    "--function-tensor=document=int32:1x64"};
    const Ending ending = flashtile(plan);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    // |i - j|, to a float, its product, the sum; a derivative of 1 costs nothing. && and == are a score's.
    EXPECT_NE(ending.out.find("\nscore function    5 operations a score, 1 load a head\n"
                              "with derivative   5 operations a score, 1 load a head\n"
                              "mask function     2 operations a score, 1 operation and 1 load a key, 1 load a query, "
                              "1 operation a head\n"),
              std::string::npos)
        << ending.out;
    plan.back() = "--function-tensor=document=int32:1x";
    const Ending refused = flashtile(plan);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("--function-tensor: has 'int32:1x', allowed is a type and a shape"), std::string::npos)
        << refused.err;
}

TEST(Info, APlanOfTheCpuSaysWhatRunsAndWhy) {
    const Command plan = {"info", "--plan", "--device=cpu", "--isa=portable", "--threads=2", "--dtype=bf16"};
    const auto with = [&](Command more) {
        more.insert(more.begin(), plan.begin(), plan.end());
        return flashtile(more);
    };
    // A thread is to have 4 tasks: of the 2 * 100 queries 16 make enough of them, and 32 too few.
    const Ending text = with({"--heads=2", "--seqlen-q=100", "--head-dim=64"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_EQ(text.out.find(R"(cpu forward       runs: cpu portable forward, 2 threads
cpu backward      runs: cpu portable backward, 2 threads

bf16 batch=1 heads=2/2 seqlen=100x100 d=64 dv=64 scale=0.125
on cpu, 2 threads

forward
  instruction set   portable: isa is portable
  products          fp32 vectors: 16-bit inputs are widened
  forward
    tile            16 queries x 128 keys
    tasks           14 of 16 queries each: so few that every thread has work
    threads         2
  passed over       neon_bf16: isa is portable
  passed over       amx: isa is portable
)"),
              0u)
        << text.out;
    const Ending json = with({"--heads=2", "--seqlen-q=100", "--head-dim=64", "--json"});
    const auto report = nlohmann::json::parse(json.out);
    EXPECT_EQ(report.at("can_run").at("cpu").at("backward").at("on"), "cpu portable backward, 2 threads");
    EXPECT_EQ(report.at("forward").at("passed_over").at("avx2"), "isa is portable");
    EXPECT_EQ(report.at("forward").at("kernels").at(0).at("threads"), 2);
    const Ending decode =
        with({"--heads=8", "--kv-heads=2", "--seqlen-q=1", "--seqlen-k=1000", "--page-size=16", "--num-splits=4"});
    EXPECT_NE(decode.out.find(R"(
  splits of keys    4 of up to 256 keys, for sequences of up to 2 queries: num_splits, as far as steps of 128 keys allow
  decode
    tile            4 queries x 128 keys
    tasks           8 of 1 splits of keys each: )"),
              std::string::npos)
        << decode.out;
    EXPECT_EQ(decode.out.find("cpu backward      cannot run: block_table is given to backward"),
              decode.out.find("cpu backward"));
    const Ending packed = with({"--packed", "--seqlen-q=100"});
    EXPECT_NE(packed.out.find("    tasks           at most "), std::string::npos) << packed.out;
}

TEST(Info, APlanSaysWhyNothingRuns) {
    const Ending cpu = flashtile({"info", "--plan", "--device=cpu", "--softcap=1e-31"});
    EXPECT_EQ(cpu.exit_code, 2);
    EXPECT_EQ(cpu.out, "");
    const Ending named = flashtile({"info", "--plan", "--device=cpu", "--device-name=H200"});
    EXPECT_EQ(named.exit_code, 2);
    EXPECT_EQ(named.err, "flashtile: device_name is 'H200', allowed for tensors on the CPU is NULL\n");
    // No driver is there: the CPU's plan is printed, and why not CUDA's.
    const Command command = flashtile_command({"info", "--plan", "--seqlen-q=100"});
    Command without = {"env", "FLASHTILE_CUDA_DRIVER=/nowhere/libcuda.so"};
    without.insert(without.end(), command.begin(), command.end());
    const Ending any = run(without);
    EXPECT_EQ(any.exit_code, 0) << any.err;
    EXPECT_EQ(any.out.find("cuda forward      cannot run: "), 0u) << any.out;
    EXPECT_NE(any.out.find("/nowhere/libcuda.so"), std::string::npos) << any.out;
    EXPECT_NE(any.out.find("\non cpu, "), std::string::npos) << any.out;
    // With CUDA asked for, that is the error.
    without.push_back("--device=cuda");
    const Ending cuda = run(without);
    EXPECT_EQ(cuda.exit_code, 2);
    EXPECT_NE(cuda.err.find("/nowhere/libcuda.so"), std::string::npos) << cuda.err;
}

}  // namespace
}  // namespace flashtile::tests
