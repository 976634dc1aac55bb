// attend_files_test.cpp: `flashtile attend` on every type, layout and kind of file that it reads and writes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "attention_files.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

using oracle::Precision;

enum class Container { npy, safetensors };

struct FileCase {
    const char* name;
    std::string order;   // of the dimensions in the files
    std::string stored;  // the files' type
    Precision computed;
    Container in;
    Container out;
    Command flags;
};

void PrintTo(const FileCase& c, std::ostream* stream) {
    *stream << c.name;
}

class AttendFiles : public testing::TestWithParam<FileCase> {};

TEST_P(AttendFiles, GiveTheOraclesValues) {
    const FileCase& c = GetParam();
    Sizes sizes;
    if (c.order.find('b') == std::string::npos) sizes.batch = 1;
    if (c.order.find('h') == std::string::npos) sizes.heads = sizes.kv_heads = 1;
    const auto problem = random_problem(sizes, c.stored);
    const Arranged files = arrange(problem, sizes, c.order, c.stored);

    const TemporaryFolder folder;
    Command command = {"attend"};
    if (c.in == Container::npy) {
        write_npy(folder.file("q.npy"), files.q);
        write_npy(folder.file("k.npy"), files.k);
        write_npy(folder.file("v.npy"), files.v);
        command.insert(command.end(),
                       {"--q", folder.file("q.npy"), "--k", folder.file("k.npy"), "--v", folder.file("v.npy")});
    } else {
        const std::string layer = folder.file("layer.safetensors");
        write_safetensors(layer, {{"attn.q", files.q}, {"k", files.k}, {"v", files.v}});
        command.insert(command.end(), {"--q", layer + ":attn.q", "--k", layer + ":k", "--v", layer + ":v"});
    }
    const std::string end = c.out == Container::npy ? ".npy" : ".safetensors";
    const std::string out = folder.file("out" + end), lse = folder.file("lse" + end);
    command.insert(command.end(), {"--out", out, "--lse", lse});
    command.insert(command.end(), c.flags.begin(), c.flags.end());

    const Ending ending = flashtile(command);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_EQ(ending.err, "");
    if (c.out == Container::npy)
        expect_right(problem, sizes, c.order, c.computed, read_npy(out), read_npy(lse));
    else
        expect_right(problem, sizes, c.order, c.computed, read_safetensors(out, "out"), read_safetensors(lse, "lse"));
}

const std::vector<FileCase> file_cases = {
    {"sd", "sd", "fp32", Precision::fp32, Container::npy, Container::npy, {}},
    {"shd", "shd", "fp32", Precision::fp32, Container::npy, Container::npy, {}},
    {"bshd", "bshd", "fp32", Precision::fp32, Container::npy, Container::npy, {"--layout=bshd"}},
    {"bhsd", "bhsd", "fp32", Precision::fp32, Container::npy, Container::npy, {"--layout=bhsd"}},
    {"hsd", "hsd", "fp32", Precision::fp32, Container::npy, Container::safetensors, {"--layout=bhsd"}},
    {"sd_heads_first", "sd", "fp32", Precision::fp32, Container::npy, Container::npy, {"--layout=bhsd"}},
    {"fp32_safetensors", "bshd", "fp32", Precision::fp32, Container::safetensors, Container::safetensors, {}},
    {"fp64", "bshd", "fp64", Precision::fp32, Container::npy, Container::npy, {}},
    {"fp64_safetensors", "shd", "fp64", Precision::fp32, Container::safetensors, Container::npy, {}},
    {"fp64_in_fp16", "bshd", "fp64", Precision::fp16, Container::npy, Container::npy, {"--dtype=fp16"}},
    {"fp16", "bshd", "fp16", Precision::fp16, Container::npy, Container::npy, {}},
    {"fp16_safetensors", "bhsd", "fp16", Precision::fp16, Container::safetensors, Container::npy, {"--layout=bhsd"}},
    {"fp16_in_fp32", "bshd", "fp16", Precision::fp32, Container::npy, Container::npy, {"--dtype=fp32"}},
    {"bf16", "bshd", "bf16", Precision::bf16, Container::npy, Container::safetensors, {}},
    {"bf16_safetensors", "shd", "bf16", Precision::bf16, Container::safetensors, Container::safetensors, {}},
    {"bf16_in_fp32", "bshd", "bf16", Precision::fp32, Container::safetensors, Container::npy, {"--dtype=fp32"}},
    {"fp32_in_bf16",
     "bhsd",
     "fp32",
     Precision::bf16,
     Container::npy,
     Container::safetensors,
     {"--dtype=bf16", "--layout=bhsd"}},
};

INSTANTIATE_TEST_SUITE_P(All, AttendFiles, testing::ValuesIn(file_cases),
                         [](const auto& test) { return std::string(test.param.name); });

// The shortest problem: what the tests of the flags that change no value run.
class AttendRuns : public testing::Test {
protected:
    AttendRuns() {
        const Arranged files = arrange(problem_, sizes_);
        write_npy(folder_.file("q.npy"), files.q);
        write_npy(folder_.file("k.npy"), files.k);
        write_npy(folder_.file("v.npy"), files.v);
    }

    Ending attend(const std::string& out, const Command& flags) const {
        Command command = {"attend",
                           "--q",
                           folder_.file("q.npy"),
                           "--k",
                           folder_.file("k.npy"),
                           "--v",
                           folder_.file("v.npy"),
                           "--out",
                           folder_.file(out)};
        command.insert(command.end(), flags.begin(), flags.end());
        return flashtile(command);
    }

    Sizes sizes_;
    oracle::Problem problem_ = random_problem(sizes_);
    TemporaryFolder folder_;
};

TEST_F(AttendRuns, JsonSaysWhatRan) {
    const Ending ending =
        attend("out.npy", {"--json", "--threads=2", "--isa=portable", "--lse", folder_.file("l.npy")});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    const auto json = nlohmann::json::parse(ending.out);
    EXPECT_EQ(json.at("out"), folder_.file("out.npy"));
    EXPECT_EQ(json.at("lse"), folder_.file("l.npy"));
    EXPECT_EQ(json.at("shape"), (std::vector<int>{2, 37, 6, 40}));
    EXPECT_EQ(json.at("dtype"), "fp32");
    EXPECT_EQ(json.at("layout"), "bshd");
    EXPECT_EQ(json.at("ran"), "cpu portable forward, 2 threads");
    EXPECT_GT(json.at("seconds").get<double>(), 0.0);
}

TEST_F(AttendRuns, EveryInstructionSetThatInfoLists) {
    const auto info = nlohmann::json::parse(flashtile({"info", "--json"}).out);
    for (const auto& set : info.at("isas")) {
        const std::string name = set.at("name");
        SCOPED_TRACE(name);
        const Ending ending = attend(name + ".npy", {"--json", "--isa=" + name});
        if (!set.at("available")) {
            EXPECT_EQ(ending.exit_code, 2);
            continue;
        }
        ASSERT_EQ(ending.exit_code, 0) << ending.err;
        EXPECT_NE(ending.out.find("cpu " + name + " forward"), std::string::npos) << ending.out;
        expect_right(problem_, sizes_, "bshd", Precision::fp32, read_npy(folder_.file(name + ".npy")));
    }
}

TEST_F(AttendRuns, ThreadsChangeNoBit) {
    for (const char* threads : {"1", "2", "5"}) {
        const Ending ending =
            attend(std::string(threads) + ".npy", {"--json", "--causal", std::string("--threads=") + threads});
        ASSERT_EQ(ending.exit_code, 0) << ending.err;
        EXPECT_NE(ending.out.find(std::string(" ") + threads + " thread"), std::string::npos) << ending.out;
        EXPECT_EQ(read_npy(folder_.file(std::string(threads) + ".npy")).values, read_npy(folder_.file("1.npy")).values);
    }
}

TEST_F(AttendRuns, ResultTakesThePlaceOfAnOlderOne) {
    write_npy(folder_.file("out.npy"), {"fp32", {1}, {7.0}});
    std::filesystem::create_symlink("out.npy", folder_.file("link.npy"));
    ASSERT_EQ(attend("link.npy", {}).exit_code, 0);
    EXPECT_TRUE(std::filesystem::is_symlink(folder_.file("link.npy")));
    expect_right(problem_, sizes_, "bshd", Precision::fp32, read_npy(folder_.file("out.npy")));
    EXPECT_EQ(folder_.names(), (std::set<std::string>{"q.npy", "k.npy", "v.npy", "out.npy", "link.npy"}));
}

// A .safetensors file that holds one tensor needs no name for it, and a file's name may hold a colon.
TEST_F(AttendRuns, NamesOfFilesAndTensors) {
    const Arranged files = arrange(problem_, sizes_);
    write_safetensors(folder_.file("one.safetensors"), {{"whatever", files.q}});
    write_npy(folder_.file("k:2.npy"), files.k);
    const Ending ending = flashtile({"attend", "--q", folder_.file("one.safetensors"), "--k", folder_.file("k:2.npy"),
                                     "--v", folder_.file("v.npy"), "--out", folder_.file("out.npy")});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    expect_right(problem_, sizes_, "bshd", Precision::fp32, read_npy(folder_.file("out.npy")));
}

}  // namespace
}  // namespace flashtile::tests
