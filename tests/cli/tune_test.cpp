// tune_test.cpp: `flashtile tune` as its users run it, without a GPU: what it refuses, what it keeps for this CPU, and,
// with a fake driver, what it makes of right and of wrong results and of times that are made up. No GPU test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

TEST(Tune, RefusesWhatCannotBe) {
    const auto expect_refused = [](const Command& flags, const std::string& message) {
        Command command = {"tune"};
        command.insert(command.end(), flags.begin(), flags.end());
        const Ending ending = flashtile(command);
        EXPECT_EQ(ending.exit_code, 2) << message;
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
    };
    expect_refused({"--pass=sideways"}, "sideways not in {forward,backward,both}");
    expect_refused({"--seconds=0"}, "is 0, allowed is a number above 0");
    expect_refused({"--seqlen=0"}, "is 0, allowed is a whole number of at least 1");
    expect_refused({"--seqlen-q=0"}, "--seqlen-q: is 0, allowed is a whole number of at least 1");
    expect_refused({"--batch=0"}, "--batch: is 0, allowed is a whole number of at least 1");
    expect_refused({"--seqlen=64", "--seqlen-q=64"}, "--seqlen-q excludes --seqlen");
    expect_refused({"--list", "--head-dim=64"}, "--head-dim: is given beside --list");
    expect_refused({"--forget", "--list"}, "--forget: is given beside --list");
    expect_refused({"--forget", "--causal"}, "--causal: is given beside --forget");
    expect_refused({"--device=tpu"}, "--device: is tpu, allowed is a whole number of at least 0");
    expect_refused({"--threads=2"}, "--threads: is given, and only --device=cpu has a use for it");
}

TEST(Tune, OnACpuKeepsWhatLaterProcessesUse) {
    const TemporaryFolder folder;
    const auto run_with = [&](const std::string& variable, const Command& words) {
        Command command = {"env", "FLASHTILE_CACHE=" + folder.file("cache"), "FLASHTILE_NO_CHOICES=" + variable,
                           "FLASHTILE_ISA=portable"};
        for (const std::string& word : flashtile_command(words)) command.push_back(word);
        return run(command);
    };
    const Command shape = {"--head-dim=16", "--seqlen-q=300", "--heads=1", "--batch=1", "--threads=1"};
    Command tune = {"tune", "--device=cpu", "--seconds=0.001", "--json"};
    tune.insert(tune.end(), shape.begin(), shape.end());
    const Ending ending = run_with("", tune);
    ASSERT_EQ(ending.exit_code, 0) << ending.err << ending.out;
    const auto passes = nlohmann::json::parse(ending.out)["passes"];
    ASSERT_EQ(passes.size(), 2u);
    for (const auto& pass : passes) {
        EXPECT_GE(pass["tiles"].size(), 3u);
        for (const auto& tile : pass["tiles"]) EXPECT_GT(tile["milliseconds"], 0.0) << tile;
    }

    Command info = {"info", "--plan", "--device=cpu", "--dtype=fp32", "--json"};
    info.insert(info.end(), shape.begin(), shape.end());
    const auto plan = [&](const std::string& no_choices) {
        return nlohmann::json::parse(run_with(no_choices, info).out);
    };
    const nlohmann::json kernel = plan("")["forward"]["kernels"][0];
    EXPECT_EQ(kernel["measured"], true);
    EXPECT_EQ(std::to_string(kernel["task_rows"].get<int>()) + " queries a task", passes[0]["kept"]);
    EXPECT_EQ(plan("1")["forward"]["kernels"][0]["measured"], false);

    const auto list = nlohmann::json::parse(run_with("", {"tune", "--list", "--json"}).out)["list"];
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0]["for"], "forward portable fp32 d=16 dv=16, 1 thread, about 256 x 256, 1 head");
    EXPECT_EQ(run_with("", {"tune", "--forget"}).exit_code, 0);
    EXPECT_EQ(plan("")["forward"]["kernels"][0]["measured"], false);
}

#ifdef CPU_FOR_GPU

struct TuneOnAFake : testing::Test {
    TemporaryFolder folder;
    std::string choices = folder.file("cache/choices");
    Command environment = {"env",
                           "FLASHTILE_CUDA_DRIVER=" FAKE_DRIVER,
                           "FLASHTILE_NVRTC=" FAKE_NVRTC,
                           "FLASHTILE_CACHE=" + folder.file("cache"),
                           "FLASHTILE_BUNDLE=",
                           "FLASHTILE_KERNEL_SOURCES=",
                           "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};

    Ending run_tune(const Command& flags) const {
        Command command = environment;
        for (const std::string& word : flashtile_command({"tune"})) command.push_back(word);
        command.insert(command.end(), flags.begin(), flags.end());
        return run(command);
    }
    // A problem that the CPU is through with in no time.
    Ending measure(const std::string& flag = "--pass=both") const {
        return run_tune(
            {"--head-dim=64", "--seqlen=96", "--heads=2", "--batch=1", "--causal", "--seconds=0.001", flag, "--json"});
    }
    nlohmann::json list() const { return nlohmann::json::parse(run_tune({"--list", "--json"}).out)["list"]; }
};

TEST_F(TuneOnAFake, WrongResultsAreExitCode1AndNothingIsKept) {
    const Ending ending = measure("--pass=forward");  // kernels that do nothing leave the poison
    EXPECT_EQ(ending.exit_code, 1) << ending.err;
    const auto pass = nlohmann::json::parse(ending.out)["passes"][0];
    EXPECT_EQ(pass["kernel"], "forward_sm80");
    EXPECT_TRUE(pass["tiles"][0].contains("wrong")) << pass;
    EXPECT_FALSE(pass.contains("kept"));
    EXPECT_FALSE(std::filesystem::exists(choices));
}

TEST_F(TuneOnAFake, WhereNoTileIsClearlyFasterTheLibrarysOwnIsKept) {
    environment.push_back("LD_PRELOAD=" CPU_FOR_GPU);
    const Ending ending = measure();
    ASSERT_EQ(ending.exit_code, 0) << ending.err << ending.out;
    const auto passes = nlohmann::json::parse(ending.out)["passes"];
    ASSERT_EQ(passes.size(), 2u);
    for (const auto& pass : passes) {
        EXPECT_GE(pass["tiles"].size(), 4u);
        for (const auto& tile : pass["tiles"]) EXPECT_EQ(tile["milliseconds"], 0.25) << tile;  // a sample is four runs
        EXPECT_EQ(pass["kept"], pass["tiles"][0]["tile"]);
    }
    const auto kept = list();
    ASSERT_EQ(kept.size(), 2u);
    EXPECT_EQ(kept[0]["tile"], passes[0]["kept"]);
    EXPECT_EQ(kept[0]["why"],
              "measured on this GPU, batch 1, 2 heads, 2 key heads: 250.0 us, the table's tile 250.0 us");
}

TEST_F(TuneOnAFake, TheFastestIsKeptUntilItIsForgotten) {
    environment.push_back("LD_PRELOAD=" CPU_FOR_GPU);
    environment.push_back("FAKE_DRIVER_FAST_GRAPH=6");  // two graphs a tile: the third tile's samples
    const Ending ending = measure("--pass=forward");
    ASSERT_EQ(ending.exit_code, 0) << ending.err << ending.out;
    const auto pass = nlohmann::json::parse(ending.out)["passes"][0];
    EXPECT_EQ(pass["tiles"][2]["milliseconds"], 0.125);
    EXPECT_EQ(pass["kept"], pass["tiles"][2]["tile"]);
    ASSERT_EQ(list().size(), 1u);
    EXPECT_EQ(list()[0]["tile"], pass["kept"]);
    // Measuring again starts from the table and takes the place of what was kept.
    const Ending again = measure("--pass=forward");
    EXPECT_EQ(nlohmann::json::parse(again.out)["passes"][0], pass);
    EXPECT_EQ(list().size(), 1u);
    EXPECT_EQ(run_tune({"--forget"}).exit_code, 0);
    EXPECT_EQ(list().size(), 0u);
}

TEST_F(TuneOnAFake, WithoutACompilerItSaysWhatToInstall) {
    environment.push_back("FLASHTILE_NVRTC=" + folder.file("nothing"));
    const Ending ending = measure();
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_NE(ending.err.find("no NVRTC"), std::string::npos) << ending.err;
}

TEST_F(TuneOnAFake, ATypeWithoutAlternativesIsToldSo) {
    const Ending ending = run_tune({"--dtype=fp32", "--seqlen=64", "--heads=1", "--batch=1", "--pass=forward"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_NE(ending.out.find("no tiles to choose from"), std::string::npos) << ending.out;
    EXPECT_FALSE(std::filesystem::exists(choices));
}

TEST_F(TuneOnAFake, ADeviceThatIsNotThereIsRefused) {
    const Ending ending = run_tune({"--device=7"});
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_NE(ending.err.find("device_id is 7"), std::string::npos) << ending.err;
}

#endif

}  // namespace
}  // namespace flashtile::tests
