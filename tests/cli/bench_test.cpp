// bench_test.cpp: `flashtile bench` from its flags to its files. What the JSON's fields hold is tests/bench's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

TEST(Bench, FlagsReachTheRows) {
    const TemporaryFolder folder;
    const Ending ending =
        flashtile({"bench", "forward", "memory", "--seqlen=256", "--head-dim=64", "--heads=4", "--kv-heads=2",
                   "--batch=1", "--causal=1", "--dtype=fp32", "--threads=1", "--isa=portable", "--repeats=1",
                   "--against=flash1,flash2,rabe_staats", "--json", folder.file("result.json")});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_EQ(ending.err, "");
    EXPECT_EQ(ending.out.find('\r'), std::string::npos);
    std::ifstream file(folder.file("result.json"));
    const auto result = nlohmann::json::parse(file);
    EXPECT_TRUE(result.at("machine").contains("cpu"));
    EXPECT_FALSE(result.at("ceilings").empty());
    ASSERT_EQ(result.at("rows").size(), 5U);
    std::set<std::string> methods;
    for (const auto& row : result.at("rows")) methods.insert(row.at("method"));
    EXPECT_EQ(methods, (std::set<std::string>{"flashtile", "standard", "flash1", "flash2", "rabe_staats"}));
    ASSERT_EQ(result.at("memory").size(), 2U);  // forward and backward
    for (const std::string& method : methods)
        EXPECT_TRUE(result.at("memory")[1].at(method + "_mib").is_number()) << method;
    for (const auto& row : result.at("rows")) {
        EXPECT_EQ(row.at("pass"), "forward");
        EXPECT_EQ(row.at("dtype"), "fp32");
        EXPECT_EQ(row.at("seqlen"), 256);
        EXPECT_EQ(row.at("head_dim"), 64);
        EXPECT_EQ(row.at("heads"), 4);
        EXPECT_EQ(row.at("kv_heads"), 2);
        EXPECT_EQ(row.at("batch"), 1);
        EXPECT_EQ(row.at("causal"), true);
        EXPECT_EQ(row.at("threads"), 1);
        EXPECT_EQ(row.at("isa") == "portable", row.at("method") == "flashtile");
        EXPECT_GT(row.at("ceiling_share").get<double>(), 0.0);
    }
    EXPECT_EQ(folder.names(), std::set<std::string>{"result.json"});
}

TEST(Bench, ReplacesAnOlderResultWholeOrNotAtAll) {
    const TemporaryFolder folder;
    const Command quick = {
        "bench",       "forward",     "--seqlen=64", "--head-dim=16",           "--heads=1", "--batch=1", "--causal=0",
        "--threads=1", "--repeats=1", "--json",      folder.file("result.json")};
    std::ofstream(folder.file("result.json")) << "precious";
    // Files may not grow: the new result cannot be written.
    Command limited = {"prlimit", "--fsize=0"};
    for (const std::string& word : flashtile_command(quick)) limited.push_back(word);
    const Ending failed = run(limited);
    EXPECT_EQ(failed.exit_code, 2);
    EXPECT_NE(failed.err.find("no room"), std::string::npos) << failed.err;
    std::ifstream old(folder.file("result.json"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(old), {}), "precious");
    EXPECT_EQ(folder.names(), std::set<std::string>{"result.json"});

    const Ending ending = flashtile(quick);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    std::ifstream file(folder.file("result.json"));
    EXPECT_EQ(nlohmann::json::parse(file).at("rows").size(), 2U);
    EXPECT_EQ(folder.names(), std::set<std::string>{"result.json"});
}

TEST(Bench, DecodeHasRowsForPagesAndPyTorchNoneWithoutIt) {
    const Ending ending = flashtile({"bench", "decode", "--seqlen=64", "--head-dim=16", "--heads=4", "--kv-heads=2",
                                     "--page-size=0,16", "--threads=1", "--repeats=1"});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_NE(
        ending.out.find("decode fp32, head dimension 16, 4 query heads, 2 key heads, 1 query a sequence, 1 thread"),
        std::string::npos)
        << ending.out;
    for (const char* row : {"     64     1       0.0  dense  flashtile ", "     64     1       0.0     16  flashtile "})
        EXPECT_NE(ending.out.find(row), std::string::npos) << ending.out;
}

TEST(Bench, RefusesBeforeMeasuring) {
    const auto expect_refused = [](const Command& flags, const std::string& message) {
        Command command = {"bench"};
        const bool alone = flags.front() == "decode" || flags.front() == "baselines";
        if (!alone || flags.size() == 1) command.emplace_back("forward");
        command.insert(command.end(), flags.begin(), flags.end());
        const Ending ending = flashtile(command);
        EXPECT_EQ(ending.exit_code, 2) << message;
        EXPECT_EQ(ending.out, "");
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
    };
    expect_refused({"sideways"}, "sideways not in {forward,backward,both,memory,decode,baselines}");
    expect_refused({"--head-dim=0"}, "--head-dim: Value 0 not in range 1 to 512");
    expect_refused({"--threads=4097"}, "--threads: Value 4097 not in range 1 to 4096");
    expect_refused({"--causal=maybe"}, "--causal: maybe not in {0,1,both}");
    expect_refused({"--dtype=fp64"}, "--dtype: fp64 not in");
    expect_refused({"--heads=6", "--kv-heads=4", "--seqlen=512"}, "kv");
    expect_refused({"decode"}, "work is forward decode, allowed is decode alone or others");
    expect_refused({"decode", "--causal=1"}, "--causal: is given, and decode has no use for it");
    expect_refused({"decode", "--device=cuda"}, "--device is given, and decode has no use for it");
    expect_refused({"decode", "--against=flash1"}, "--against is flash1, allowed with decode is torch");
    expect_refused({"--against=flash3"}, "--against: flash3 not in");
    expect_refused({"baselines"}, "work is baselines, which goes with --device=cuda and no other work");
    expect_refused({"baselines", "--device=cuda", "--threads=2"},
                   "--threads is given, and --device=cuda has no use for it");
    expect_refused({"decode", "--seqlen=100", "--page-size=16"}, "--page-size is 16, allowed are divisors of --seqlen");
    expect_refused({"decode", "--seqlen=16777216", "--batch=1000000"}, "whose keys and values take");
    expect_refused({"--queries=2"}, "--queries: is given, and only decode has a use for it");
    expect_refused({"--json=/no/such/folder/result.json"}, "--json is /no/such/folder/result.json");
}

}  // namespace
}  // namespace flashtile::tests
