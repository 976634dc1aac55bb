// attend_unfinished_test.cpp: what `flashtile attend` leaves behind when it cannot finish: nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "process.h"
#include "temporary_folder.h"
#include "tensor_file.h"

namespace flashtile::tests {
namespace {

// A problem that takes a minute or so (and far longer than any test waits), and whose result is 256 KiB.
class Unfinished : public testing::Test {
protected:
    Unfinished() {
        write_npy(folder_.file("q.npy"), {"fp32", {4096, 1, 16}, std::vector<double>(4096 * 16)});
        write_sparse_npy(folder_.file("k.npy"), {1 << 22, 1, 16});
    }

    Command long_attend() const {
        return flashtile_command({"attend", "--q", folder_.file("q.npy"), "--k", folder_.file("k.npy"), "--v",
                                  folder_.file("k.npy"), "--out", folder_.file("out.npy"), "--lse",
                                  folder_.file("lse.npy"), "--isa=portable", "--threads=1"});
    }

    // Waits until the folder holds as many: both outputs under their temporary names. Computing starts right after.
    bool comes_to_files(std::size_t count) const {
        for (int n = 0; n < 3000; ++n) {
            if (folder_.names().size() == count) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return false;
    }

    TemporaryFolder folder_;
    const std::set<std::string> inputs_ = {"q.npy", "k.npy"};
};

class Interrupted : public Unfinished, public testing::WithParamInterface<int> {};

TEST_P(Interrupted, LeavesNothing) {
    Process process(long_attend());
    ASSERT_TRUE(comes_to_files(4));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    process.send(GetParam());
    const Ending ending = process.wait();
    EXPECT_EQ(ending.signal, GetParam());  // as a shell expects: not a normal exit
    EXPECT_EQ(folder_.names(), inputs_);
}

TEST_P(Interrupted, LeavesAnOlderResultAsItWas) {
    std::ofstream(folder_.file("out.npy")) << "precious";
    Process process(long_attend());
    ASSERT_TRUE(comes_to_files(5));
    process.send(GetParam());
    EXPECT_EQ(process.wait().signal, GetParam());
    std::string content;
    std::ifstream(folder_.file("out.npy")) >> content;
    EXPECT_EQ(content, "precious");
    EXPECT_EQ(folder_.names(), (std::set<std::string>{"q.npy", "k.npy", "out.npy"}));
}

INSTANTIATE_TEST_SUITE_P(By, Interrupted, testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& test) { return std::string("SIG") + ::sigabbrev_np(test.param); });

// A full disk is reported at once, though the problem takes long: the room is reserved before the work starts.
TEST_F(Unfinished, OverTheFileSizeLimit) {
    Command command = long_attend();
    command.insert(command.begin(), {"prlimit", "--fsize=1000"});
    const Ending ending = run(command);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_NE(ending.err.find("out.npy: no room for 262272 bytes: File too large"), std::string::npos) << ending.err;
    EXPECT_EQ(folder_.names(), inputs_);
}

// The disk has room for out, and not for lse beside it. It is a tmpfs that only the shell and its children see.
TEST_F(Unfinished, OnAFullDisk) {
    if (run({"unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", folder_.file("")}).exit_code != 0)
        GTEST_SKIP() << "this machine lets no test mount a disk of its own";
    const std::string disk = folder_.file("disk");
    std::filesystem::create_directory(disk);
    Command command = {
        "unshare", "--map-root-user",
        "--mount", "sh",
        "-c",      "disk=$1; shift; mount -t tmpfs -o size=268k none $disk && \"$@\"; code=$?; ls -A $disk; exit $code",
        "sh",      disk};
    const Command attend = long_attend();
    for (const std::string& argument : attend) {
        const bool output = argument == folder_.file("out.npy") || argument == folder_.file("lse.npy");
        command.push_back(output ? disk + argument.substr(argument.rfind('/')) : argument);
    }
    const Ending ending = run(command);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_EQ(ending.out, "") << "left on the disk";
    EXPECT_NE(ending.err.find("lse.npy: no room for 16512 bytes: No space left on device"), std::string::npos)
        << ending.err;
}

// A mapped input that is cut short while it is read.
TEST_F(Unfinished, WhenAnInputIsCutShort) {
    Process process(long_attend());
    ASSERT_TRUE(comes_to_files(4));
    std::filesystem::resize_file(folder_.file("k.npy"), 4096);
    const Ending ending = process.wait();
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_NE(ending.err.find("a mapped file was cut short"), std::string::npos) << ending.err;
    EXPECT_EQ(folder_.names(), inputs_);
}

}  // namespace
}  // namespace flashtile::tests
