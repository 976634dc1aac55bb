// tuned_tiles_file_test.cpp: what is made of every kind of damage to the file of tuned tiles: nothing is used, and it
// is said.
#include "cuda/tuned_tiles_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

struct TunedTilesFile : testing::Test {
    TemporaryFolder folder;
    fs::path place = folder / "new" / "flashtile";
    fs::path file = place / kTunedTilesFile;
    const Lines lines = {"the first tile", "a second one"};

    std::string write() const {
        return edit_tuned_tiles(place, [&](Lines& all) { all = lines; });
    }
    void expect_unused(const std::string& why) const {
        const TunedTileLines found = read_tuned_tiles(place);
        EXPECT_EQ(found.why_not, why);
        EXPECT_EQ(found.lines, Lines{});
    }
};

TEST_F(TunedTilesFile, ReturnsWhatWasWrittenAndKeepsItPrivate) {
    expect_unused("");
    EXPECT_FALSE(fs::exists(place)) << "a look made the folder";
    ASSERT_EQ(write(), "");
    EXPECT_EQ(read_tuned_tiles(place).lines, lines);
    EXPECT_EQ(read_tuned_tiles(place).why_not, "");
    struct stat status {};
    ASSERT_EQ(::stat(file.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    ASSERT_EQ(::stat(place.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    ASSERT_EQ(edit_tuned_tiles(place, [](Lines& all) { all.erase(all.begin()); }), "");
    EXPECT_EQ(read_tuned_tiles(place).lines, Lines{"a second one"});
}

TEST_F(TunedTilesFile, AnyTruncationAndAnyFlippedBitIsDamage) {
    ASSERT_EQ(write(), "");
    const std::string whole = read_file(file);
    for (std::size_t n = 0; n < whole.size(); ++n) {
        write_file(file, whole.substr(0, n));
        expect_unused("is damaged");
        std::string damaged = whole;
        damaged[n] ^= 1 << n % 8;
        write_file(file, damaged);
        expect_unused("is damaged");
    }
    write_file(file, whole + "more\n");
    expect_unused("is damaged");
    ASSERT_EQ(write(), "");
    EXPECT_EQ(read_tuned_tiles(place).lines, lines) << "a damaged file is replaced";
}

TEST_F(TunedTilesFile, WhatOthersMayWriteIsNotTrusted) {
    ASSERT_EQ(write(), "");
    ::chmod(file.c_str(), 0620);
    expect_unused("may be written by others");
    ::chmod(file.c_str(), 0600);
    ::chmod(place.c_str(), 0770);
    expect_unused("its folder is not used: may be written by others");
    EXPECT_EQ(write(), "may be written by others");
}

TEST_F(TunedTilesFile, WhatAnotherUserOwnsIsNotTrusted) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    ASSERT_EQ(write(), "");
    ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
    expect_unused("belongs to another user, 65534");
    ASSERT_EQ(write(), "");  // and is replaced
    EXPECT_EQ(read_tuned_tiles(place).lines, lines);
}

TEST_F(TunedTilesFile, LinksFoldersAndPipesAreNotRead) {
    ASSERT_EQ(write(), "");
    fs::rename(file, place / "elsewhere");
    fs::create_symlink(place / "elsewhere", file);
    expect_unused("Too many levels of symbolic links");
    fs::remove(file);
    fs::create_directory(file);
    expect_unused("is no regular file");
    EXPECT_EQ(write(), "Is a directory");
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_unused("is no regular file");
}

TEST_F(TunedTilesFile, APlaceThatCannotBeMadeIsReported) {
    write_file(folder / "new", "a file where a folder should be");
    EXPECT_EQ(write(), "Not a directory");
    EXPECT_NE(edit_tuned_tiles("", [](Lines&) {}), "");
    EXPECT_EQ(read_tuned_tiles("").why_not, "");
}

TEST_F(TunedTilesFile, NoneOfTwoProcessesEditsIsLost) {
    constexpr int kProcesses = 4, kEdits = 40;
    std::vector<pid_t> running;
    for (int process = 0; process < kProcesses; ++process) {
        const pid_t child = ::fork();
        if (child == 0) {
            bool good = true;
            for (int n = 0; n < kEdits; ++n)
                good = edit_tuned_tiles(place, [](Lines& all) { all.emplace_back("one more"); }).empty() && good;
            ::_exit(good ? 0 : 1);
        }
        running.push_back(child);
    }
    for (const pid_t child : running) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(read_tuned_tiles(place).lines.size(), std::size_t{kProcesses * kEdits});
}

}  // namespace
}  // namespace flashtile::gpu
