// tuned_tiles_test.cpp: tuned tiles from the file to a launched kernel, in processes of their own, with a fake driver
// and a fake compiler. No GPU test.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;

// What a process planned, and what its call got.
struct Answer {
    nlohmann::json plan;
    int shared_memory = 0;
    std::string error;

    nlohmann::json kernel() const { return plan["forward"]["kernels"][0]; }
    bool measured() const { return kernel()["measured"]; }
    // The n-th of the tiles to choose from; the first is the table's.
    std::string choice(std::size_t n) const { return plan["forward"]["alternatives"].at(n)["choice"]; }
};

struct TunedTilesTest : testing::Test {
    TemporaryFolder folder;
    fs::path file = folder / "cache" / "choices";
    std::map<std::string, std::string> environment = {{"FLASHTILE_CUDA_DRIVER", FAKE_DRIVER},
                                                      {"FLASHTILE_NVRTC", FAKE_NVRTC},
                                                      {"FLASHTILE_CACHE", folder / "cache"},
                                                      {"FLASHTILE_BUNDLE", ""},
                                                      {"FLASHTILE_KERNEL_SOURCES", ""}};

    std::string client(const std::string& arguments) const {
        std::string command = "env";
        for (const auto& [name, value] : environment) command += " " + name + "=\"" + value + "\"";
        std::FILE* running = ::popen((command + " " EMULATOR " " CLIENT " " + arguments + " 2>&1").c_str(), "r");
        std::string text;
        for (int c; (c = std::fgetc(running)) != EOF;) text += static_cast<char>(c);
        EXPECT_EQ(::pclose(running), 0) << text;
        return text;
    }
    Answer tile(const std::string& arguments = "") const {
        std::istringstream text(client("tile " + arguments));
        std::string line;
        std::getline(text, line);
        if (line.starts_with("error")) return {{}, 0, line};
        Answer answer{nlohmann::json::parse(line), 0, ""};
        EXPECT_TRUE(text >> answer.shared_memory) << "the call failed";
        return answer;
    }
    nlohmann::json info() const { return nlohmann::json::parse(client("info"))["choices"]; }
    static std::string quoted(const std::string& text) { return "'" + text + "'"; }
};

TEST_F(TunedTilesTest, WhatIsKeptServesLaterProcesses) {
    const Answer before = tile();
    EXPECT_FALSE(before.measured());
    EXPECT_FALSE(fs::exists(file));
    const Answer chosen = tile(quoted(before.choice(1)) + " 1");
    EXPECT_TRUE(chosen.measured());
    EXPECT_NE(chosen.shared_memory, before.shared_memory);
    EXPECT_EQ(chosen.shared_memory, chosen.kernel()["shared_memory"].get<int>()) << "the call followed the plan";
    const Answer later = tile();
    EXPECT_EQ(later.kernel(), chosen.kernel());
    EXPECT_EQ(later.shared_memory, chosen.shared_memory);
    EXPECT_EQ(later.choice(0), before.choice(0)) << "what is chosen does not change what there is to choose from";
    const nlohmann::json list = info();
    EXPECT_EQ(list["file"], file.string());
    EXPECT_EQ(list["why_not"], "");
    ASSERT_EQ(list["list"].size(), 1u);
    EXPECT_EQ(list["list"][0]["device"], "Fake_1/80");
    EXPECT_EQ(list["list"][0]["for"],
              "forward_sm80 bf16 d=64 dv=64 causal too few queries to fill the GPU, about 128 x 128");
}

TEST_F(TunedTilesTest, WhatIsNotKeptServesItsProcess) {
    const Answer before = tile();
    EXPECT_TRUE(tile(quoted(before.choice(1)) + " 0").measured());
    EXPECT_FALSE(tile().measured());
    EXPECT_FALSE(fs::exists(file));
}

TEST_F(TunedTilesTest, ALaterTileTakesTheEarliersPlaceAndForgettingEndsIt) {
    const Answer before = tile();
    tile(quoted(before.choice(1)) + " 1");
    const Answer second = tile(quoted(before.choice(2)) + " 1");
    EXPECT_EQ(info()["list"].size(), 1u);
    EXPECT_EQ(tile().kernel(), second.kernel());
    EXPECT_FALSE(tile("forget").measured());
    EXPECT_FALSE(tile().measured());
    EXPECT_EQ(info()["list"].size(), 0u);
}

TEST_F(TunedTilesTest, TheEnvironmentTurnsThemOff) {
    tile(quoted(tile().choice(1)) + " 1");
    ASSERT_TRUE(tile().measured());
    environment["FLASHTILE_NO_CHOICES"] = "1";
    EXPECT_FALSE(tile().measured());
    EXPECT_EQ(info()["why_not"], "FLASHTILE_NO_CHOICES is set");
    environment["FLASHTILE_NO_CHOICES"] = "";
    EXPECT_TRUE(tile().measured());
}

TEST_F(TunedTilesTest, ADamagedFileIsNotUsedAndInfoSaysSo) {
    const Answer before = tile();
    tile(quoted(before.choice(1)) + " 1");
    fs::resize_file(file, fs::file_size(file) - 1);
    const Answer after = tile();
    EXPECT_FALSE(after.measured());
    EXPECT_EQ(after.shared_memory, before.shared_memory);
    EXPECT_EQ(info()["why_not"], "is damaged");
}

TEST_F(TunedTilesTest, AnotherGpusOrVersionsHoldNothingHere) {
    const std::string choice = tile().choice(1);
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = choice;
        return changed.replace(changed.find(from), from.size(), to);
    };
    EXPECT_FALSE(tile(quoted(with("device=Fake_1/80", "device=Fake_0/80")) + " 1").measured());
    EXPECT_FALSE(tile(quoted(with("device=Fake_1/80", "device=Fake_1/86")) + " 1").measured());
    EXPECT_FALSE(tile(quoted(with("version=", "version=9")) + " 1").measured());
    EXPECT_EQ(info()["list"].size(), 3u) << "they stay for whom they serve";
    EXPECT_TRUE(tile(quoted(choice) + " 1").measured());
    environment["FAKE_DRIVER_ARCHITECTURE"] = "89";
    EXPECT_FALSE(tile().measured());
}

// A bundle holds the tables' tiles only.
TEST_F(TunedTilesTest, WithoutACompilerTheTablesTilesServe) {
    tile(quoted(tile().choice(1)) + " 1");
    client("bundle " + (folder / "b").string() + " 80 1 0");
    environment["FLASHTILE_NVRTC"] = folder / "nothing";
    environment["FLASHTILE_BUNDLE"] = folder / "b";
    EXPECT_FALSE(tile().measured());
}

TEST_F(TunedTilesTest, WhatIsNoTunedTileIsRefused) {
    EXPECT_EQ(tile("'faster please' 1").error,
              "error 1 choice is 'faster please', allowed is a line that flashtile_plan_report gives");
    EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace flashtile::gpu
