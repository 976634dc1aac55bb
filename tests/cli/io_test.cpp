// io_test.cpp: `flashtile io` from its flags to its files. What is counted is the matter of
// tests/bench/traffic_test.cpp and backend_traffic_test.cpp.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

TEST(Io, FlagsReachTheRows) {
    const TemporaryFolder folder;
    const Ending ending =
        flashtile({"io", "--pass=forward,both", "--algorithm=standard,flash1", "--seqlen=1000", "--head-dim=64",
                   "--memory=32K", "--dtype=fp32", "--heads=3", "--json", folder.file("io.json")});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    std::ifstream file(folder.file("io.json"));
    const auto rows = nlohmann::json::parse(file).at("rows");
    ASSERT_EQ(rows.size(), 4U);
    const auto count = [&](std::size_t n) { return rows[n].at("counted_elements").get<std::int64_t>(); };
    // M is 8192 elements: Bc 32, Br 32, 32 turns of the outer loop.
    const std::int64_t N = 1000, d = 64, T = 32;
    EXPECT_EQ(count(0), 3 * 4 * N * (N + d));
    EXPECT_EQ(count(1), 3 * (3 * N * d + 2 * N + T * N * (3 * d + 4)));
    EXPECT_EQ(count(2), 3 * (11 * N * N + 12 * N * d));
    EXPECT_EQ(count(3), count(1) + 3 * (7 * N * d + T * N * (5 * d + 2)));
    EXPECT_EQ(rows[3].at("pass"), "both");
    EXPECT_EQ(rows[3].at("algorithm"), "flash1");
    EXPECT_EQ(rows[3].at("counted_bytes"), 4 * count(3));
    EXPECT_EQ(rows[1].at("lower_bound_elements"), 3.0 * N * N * d * d / 8192);
    EXPECT_TRUE(rows[3].at("lower_bound_elements").is_null());
    EXPECT_EQ(rows[1].at("Br"), 32);
    EXPECT_NE(ending.out.find("   1000  flash1            32 x 32        " + std::to_string(count(1))),
              std::string::npos)
        << ending.out;

    const Ending tiled = flashtile({"io", "--pass=forward", "--algorithm=flash2", "--seqlen=64", "--head-dim=8",
                                    "--tile=16,32", "--causal", "--json", folder.file("io.json")});
    ASSERT_EQ(tiled.exit_code, 0) << tiled.err;
    std::ifstream other(folder.file("io.json"));
    // Blocks of 16 queries see 1, 1, 2 and 2 blocks of 32 keys.
    EXPECT_EQ(nlohmann::json::parse(other).at("rows")[0].at("counted_elements"), 2 * 64 * 8 + 64 + 6 * 2 * 32 * 8);
}

// The CPU backend's rows, with the tasks of whatever plan this machine has.
TEST(Io, CountsTheBackend) {
    const TemporaryFolder folder;
    const Ending ending =
        flashtile({"io", "--pass=forward,backward", "--algorithm=cpu", "--seqlen=1000", "--head-dim=64", "--dtype=fp16",
                   "--heads=6", "--kv-heads=2", "--json", folder.file("io.json")});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    std::ifstream file(folder.file("io.json"));
    const auto rows = nlohmann::json::parse(file).at("rows");
    ASSERT_EQ(rows.size(), 2U);
    const std::int64_t N = 1000, d = 64;
    const auto turns = [&](std::int64_t of) { return (N + of - 1) / of; };
    const auto tasks = [&](std::size_t n) { return turns(rows[n].at("task_rows").get<std::int64_t>()); };
    EXPECT_EQ(rows[0].at("counted_elements"), 6 * (2 * N * d + N + tasks(0) * N * 2 * d));
    EXPECT_EQ(rows[0].at("counted_bytes"), 6 * (2 * (2 * N * d + tasks(0) * N * 2 * d) + 4 * N));
    EXPECT_EQ(rows[0].at("moved").at("k").at("loads"), 6 * tasks(0) * N * d);
    EXPECT_EQ(rows[0].at("Br"), rows[0].at("task_rows"));
    EXPECT_EQ(rows[0].at("kv_heads"), 2);
    const std::int64_t blocks = turns(rows[1].at("Bc").get<std::int64_t>());
    EXPECT_EQ(rows[1].at("counted_elements"),
              6 * (7 * N * d + 3 * N + tasks(1) * N * (2 * d + 2) + blocks * N * 2 * d) + 2 * 2 * N * d);
    EXPECT_EQ(rows[1].at("moved").at("dk").at("bytes"), 2 * N * d * 2);
    EXPECT_NE(ending.out.find(rows[1].at("isa").get<std::string>() + ", tasks of " +
                              std::to_string(rows[1].at("task_rows").get<std::int64_t>()) + " keys"),
              std::string::npos)
        << ending.out;
}

TEST(Io, CountsTheBackendUnaskedWhereItCan) {
    const TemporaryFolder folder;
    const auto algorithms = [&](const std::string& flag) {
        const Ending ending =
            flashtile({"io", "--pass=forward", "--seqlen=64", flag, "--json", folder.file("io.json")});
        EXPECT_EQ(ending.exit_code, 0) << ending.err;
        std::ifstream file(folder.file("io.json"));
        const auto result = nlohmann::json::parse(file);
        std::string names;
        for (const auto& row : result.at("rows")) names.append(row.at("algorithm").get<std::string>()).append(" ");
        return names;
    };
    EXPECT_EQ(algorithms("--head-dim=512"), "standard flash1 flash2 cpu ");
    EXPECT_EQ(algorithms("--head-dim=513"), "standard flash1 flash2 ");
    EXPECT_EQ(algorithms("--density=0.5"), "standard flash1 flash2 ");
}

TEST(Io, RefusesBeforeCounting) {
    const auto expect_refused = [](const Command& flags, const std::string& message) {
        Command command = {"io"};
        command.insert(command.end(), flags.begin(), flags.end());
        const Ending ending = flashtile(command);
        EXPECT_EQ(ending.exit_code, 2) << message;
        EXPECT_EQ(ending.out, "");
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
    };
    expect_refused({"--pass=sideways"}, "--pass: sideways not in {forward,backward,both}");
    expect_refused({"--seqlen=0"}, "--seqlen: Value 0 not in range 1 to 1048576");
    expect_refused({"--memory=100"}, "--memory is 100 bytes, allowed is from a row of the head dimension, 128 bytes");
    expect_refused({"--memory=much"}, "--memory");
    expect_refused({"--causal", "--density=0.5"}, "--density is 0.5, allowed with --causal is 1");
    expect_refused({"--tile=64"}, "--tile");
    expect_refused({"--tile=1,1", "--seqlen=65536"}, "--seqlen is 65536, allowed with blocks of 1 x 1");
    expect_refused({"--seqlen=512", "--plot=a.png"}, "--plot has an axis of --seqlen or of --memory");
    expect_refused({"--algorithm=cpu", "--seqlen=63,512"},
                   "--seqlen is 63, allowed with --algorithm=cpu is 64 to 65536");
    expect_refused({"--algorithm=cpu", "--head-dim=513"},
                   "--head-dim is 513, allowed with --algorithm=cpu is 1 to 512");
    expect_refused({"--algorithm=flash2,cpu", "--density=0.5"}, "--density is 0.5, allowed with --algorithm=cpu is 1");
    expect_refused({"--algorithm=cpu", "--heads=130", "--kv-heads=2"},
                   "--kv-heads is 2, allowed with --algorithm=cpu is at least --heads, 130, divided by 64");
    expect_refused({"--heads=3", "--kv-heads=2"}, "--kv-heads is 2, allowed are divisors of --heads, 3");
    expect_refused({"--json=/no/such/folder/io.json"}, "--json is /no/such/folder/io.json");
    expect_refused({"--measured", "--memory=64K"}, "--memory: is given beside --measured");
    expect_refused({"--measured", "--seqlen=512,1024"}, "allowed with --measured is one");
}

}  // namespace
}  // namespace flashtile::tests
