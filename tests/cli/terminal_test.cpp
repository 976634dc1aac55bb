// terminal_test.cpp: progress is shown on a terminal, and not a byte of it is written to a pipe.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "process.h"
#include "temporary_folder.h"
#include "tensor_file.h"

namespace flashtile::tests {
namespace {

// What a problem that takes minutes says on stdout and stderr, interrupted once it has said `text`, or after a while.
Ending watch(Process::Stderr kind, const std::string& text) {
    const TemporaryFolder folder;
    write_sparse_npy(folder.file("x.npy"), {1 << 17, 64});
    Process process(
        flashtile_command({"attend", "--q", folder.file("x.npy"), "--k", folder.file("x.npy"), "--v",
                           folder.file("x.npy"), "--out", folder.file("out.npy"), "--isa=portable", "--threads=1"}),
        kind);
    using clock = std::chrono::steady_clock;
    // Longer than the first line takes to come; a terminal is waited for as long as it must.
    const auto end = clock::now() + std::chrono::milliseconds(kind == Process::Stderr::pipe ? 2000 : 30000);
    while (process.err().find(text) == std::string::npos && clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    process.send(SIGINT);
    return process.wait();
}

TEST(Progress, IsShownOnATerminal) {
    const Ending ending = watch(Process::Stderr::terminal, "\rattending, q (131072, 64): ");
    EXPECT_EQ(ending.signal, SIGINT);
    EXPECT_NE(ending.err.find("\rattending, q (131072, 64): "), std::string::npos) << ending.err;
    EXPECT_EQ(ending.out, "");
}

TEST(Progress, IsNotWrittenToAPipe) {
    const Ending ending = watch(Process::Stderr::pipe, "attending");
    EXPECT_EQ(ending.signal, SIGINT);
    EXPECT_EQ(ending.err, "");
    EXPECT_EQ(ending.out, "");
}

TEST(Progress, OfVerify) {
    const Command command = flashtile_command({"verify", "--case=options/causal"});
    EXPECT_EQ(Process(command).wait().err, "");
    EXPECT_NE(Process(command, Process::Stderr::terminal).wait().err.find(" problems"), std::string::npos);
}

TEST(Progress, OfBench) {
    const Command command = flashtile_command({"bench", "forward", "--seqlen=64", "--head-dim=16", "--heads=1",
                                               "--batch=1", "--causal=0", "--threads=1", "--repeats=1"});
    EXPECT_EQ(Process(command).wait().err, "");
    const std::string shown = Process(command, Process::Stderr::terminal).wait().err;
    EXPECT_NE(shown.find("\r[1/1] forward fp32 d=16"), std::string::npos) << shown;
    EXPECT_TRUE(shown.ends_with("\r\x1b[K")) << shown;
}

}  // namespace
}  // namespace flashtile::tests
