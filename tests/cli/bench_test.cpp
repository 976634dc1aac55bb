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

TEST(Bench, FunctionsAreMeasuredBesideWhatTheyStandFor) {
    const TemporaryFolder folder;
    const std::string file = folder.file("result.json");
    const Ending ending = flashtile(
        {"bench", "functions", "--seqlen=256", "--head-dim=16", "--heads=2", "--repeats=1", "--json=" + file});
    ASSERT_EQ(ending.exit_code, 0) << ending.err << ending.out;
    std::ifstream stream(file);
    const auto result = nlohmann::json::parse(stream);
    std::set<std::string> named;
    for (const auto& row : result.at("functions"))
        named.insert(row.at("pass").get<std::string>() + " " + row.at("function").get<std::string>() + " beside " +
                     row.at("beside").get<std::string>());
    for (const char* row : {"forward ALiBi beside alibi_slopes", "backward ALiBi beside alibi_slopes",
                            "forward documents of 256 beside packed batch", "backward blocks, a quarter beside dense"})
        EXPECT_TRUE(named.contains(row)) << row;
    EXPECT_TRUE(result.contains("first_call_ms"));
}

// In place of Python, which would draw: a program that does nothing.
TEST(Bench, PaperMeasuresAPointOrNamesIt) {
    const TemporaryFolder folder;
    Command command = {"env", "FLASHTILE_PYTHON=true"};
    for (const std::string& word : flashtile_command(
             {"bench", "paper", "--against=flash1", "--seqlen=64", "--heads=2", "--head-dim=16", "--tokens=64",
              "--threads=1", "--isa=portable", "--repeats=1", "--minutes=0.06", "--folder", folder.file("paper")}))
        command.push_back(word);
    const Ending ending = run(command);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    std::ifstream file(folder.file("paper/results.json"));
    const auto result = nlohmann::json::parse(file);
    std::set<std::string> points;  // of the grid
    for (const auto& row : result.at("grid"))
        points.insert(row.at("pass").get<std::string>() + (row.at("causal").get<bool>() ? " causal" : ""));
    std::size_t left_out = 0;
    bool says_no_figure_7 = false;
    for (const auto& line : result.at("left_out")) {
        const auto text = line.get<std::string>();
        left_out += text.starts_with("grid: ");
        says_no_figure_7 = says_no_figure_7 || text.starts_with("Figure 7: ");
        EXPECT_NE(ending.out.find("left out: " + text), std::string::npos);
    }
    EXPECT_EQ(points.size() + left_out, 4U);  // forward and backward, causal or not
    EXPECT_TRUE(says_no_figure_7);
    ASSERT_EQ(result.at("blocks").size(), 8U);  // Br and Bc of 32 and 64, two algorithms
    // flash2, Br 64, Bc 32: Q, O and L once, K and V once; fp32, two heads.
    const auto& blocks = result.at("blocks")[6];
    EXPECT_EQ(blocks.at("algorithm"), "flash2");
    EXPECT_EQ(blocks.at("Br"), 64);
    EXPECT_EQ(blocks.at("counted_bytes"), 2 * 4 * (4 * 64 * 64 + 64));
    EXPECT_GT(blocks.at("ms").get<double>(), 0.0);
    EXPECT_GT(result.at("own_blocks").at("Br").get<int>(), 0);
}

TEST(Bench, RefusesBeforeMeasuring) {
    const auto expect_refused = [](const Command& flags, const std::string& message) {
        Command command = {"bench"};
        const bool alone = flags.front() == "decode" || flags.front() == "baselines" || flags.front() == "paper" ||
                           flags.front() == "functions";
        if (!alone || flags.size() == 1) command.emplace_back("forward");
        command.insert(command.end(), flags.begin(), flags.end());
        const Ending ending = flashtile(command);
        EXPECT_EQ(ending.exit_code, 2) << message;
        EXPECT_EQ(ending.out, "");
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
    };
    expect_refused({"sideways"}, "sideways not in {forward,backward,both,memory,decode,functions,baselines,paper}");
    expect_refused({"--head-dim=0"}, "--head-dim: Value 0 not in range 1 to 512");
    expect_refused({"--threads=4097"}, "--threads: Value 4097 not in range 1 to 4096");
    expect_refused({"--causal=maybe"}, "--causal: maybe not in {0,1,both}");
    expect_refused({"--dtype=fp64"}, "--dtype: fp64 not in");
    expect_refused({"--heads=6", "--kv-heads=4", "--seqlen=512"}, "kv");
    expect_refused({"decode"}, "work is forward decode, allowed is decode alone or others");
    expect_refused({"functions"}, "work is forward functions, allowed is functions alone or others");
    expect_refused({"functions", "--seqlen=300"}, "--seqlen is 300, allowed are multiples of 256");
    expect_refused({"functions", "--device=cuda"}, "--device is given, and functions has no use for it");
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
    expect_refused({"--folder=here"}, "--folder: is given, and only paper has a use for it");
    expect_refused({"paper", "--causal=1"}, "--causal: is given, and paper has no use for it");
    expect_refused({"paper", "--device=cuda", "--dtype=fp32"}, "--dtype is fp32, allowed for paper on --device=cuda");
    expect_refused({"--against=openvino", "--dtype=fp16"}, "--against is openvino, which can take part nowhere here");
    expect_refused({"--json=/no/such/folder/result.json"}, "--json is /no/such/folder/result.json");
}

#ifdef CPU_FOR_GPU

TEST(Bench, PaperOnAGpuNamesEveryWrongResultAndNeedsNoPython) {
    const TemporaryFolder folder;
    Command command = {"env",
                       "FLASHTILE_CUDA_DRIVER=" FAKE_DRIVER,  // its kernels do nothing and leave the poison
                       "FLASHTILE_NVRTC=" FAKE_NVRTC,
                       "FLASHTILE_CACHE=" + folder.file("cache"),
                       "FLASHTILE_PYTHON=/bin/false",
                       "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};
    for (const std::string& word :
         flashtile_command({"bench", "paper", "--device=cuda", "--seqlen=64", "--tokens=128", "--heads=1",
                            "--head-dim=64", "--minutes=0.2", "--folder", folder.file("paper")}))
        command.push_back(word);
    const Ending ending = run(command);
    EXPECT_EQ(ending.exit_code, 1) << ending.err;
    EXPECT_NE(ending.out.find("left out: torch: /bin/false has none that sees a GPU"), std::string::npos);
    EXPECT_NE(ending.out.find("plot_paper.py"), std::string::npos);
    std::ifstream file(folder.file("paper/results.json"));
    const auto result = nlohmann::json::parse(file);
    EXPECT_TRUE(result.at("grid").empty());
    std::set<std::string> wrong;
    for (const std::string line : result.at("left_out"))
        if (const auto end = line.find(": WRONG RESULT"); end != std::string::npos) wrong.insert(line.substr(0, end));
    for (const char* method : {"standard", "fa1", "general", "flashtile"})
        for (const char* where :
             {"gpt2 forward d=64 n=64: ", "grid backward d=64 causal n=64: ", "lengths backward d=64 n=64: "})
            EXPECT_TRUE(wrong.contains(std::string(where) + method)) << where << method;
    EXPECT_TRUE(wrong.contains("blocks: general 64x16"));
}

#endif

}  // namespace
}  // namespace flashtile::tests
