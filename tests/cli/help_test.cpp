// help_test.cpp: --help of every command: it succeeds, and it teaches by example.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "attention_files.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

class Help : public testing::TestWithParam<const char*> {};

TEST_P(Help, ShowsExamples) {
    const std::string command = GetParam();
    for (const Ending& ending : {flashtile({command, "--help"}), flashtile({command, "-h"})}) {
        EXPECT_EQ(ending.exit_code, 0);
        EXPECT_EQ(ending.err, "");
        const auto examples = ending.out.find("Examples:\n  flashtile " + command);
        EXPECT_NE(examples, std::string::npos) << ending.out;
    }
    const std::string all = flashtile({"--help"}).out;
    EXPECT_NE(all.find("\n  " + command + " "), std::string::npos) << all;
    EXPECT_NE(all.find("\n  flashtile " + command), std::string::npos) << all;
}

INSTANTIATE_TEST_SUITE_P(Of, Help, testing::Values("info", "attend", "verify", "bench", "io", "tune"),
                         [](const auto& test) { return std::string(test.param); });

TEST(HelpOfAttend, HasExamplesThatWork) {
    Sizes sizes{.batch = 2, .heads = 4, .kv_heads = 4, .seqlen_q = 4, .seqlen_k = 4, .head_dim = 8, .head_dim_v = 8};
    const Arranged files = arrange(random_problem(sizes), sizes);
    const TemporaryFolder folder;
    write_npy(folder.file("q.npy"), files.q);
    write_npy(folder.file("k.npy"), files.k);
    write_npy(folder.file("v.npy"), files.v);
    write_safetensors(folder.file("layer.safetensors"), {{"q", files.q}, {"k", files.k}, {"v", files.v}});
    write_safetensors(folder.file("lists.safetensors"),
                      {{"counts", {"int32", {1, 1, 1}, {1}}}, {"indices", {"int32", {1, 1, 1, 1}, {0}}}});
    const auto as = [](Tensor tensor, const char* dtype) {
        tensor.dtype = dtype;
        return tensor;
    };
    write_safetensors(folder.file("q.safetensors"), {{"q", as(files.q, "fp16")}});
    write_safetensors(folder.file("f8.safetensors"),
                      {{"k", as(files.k, "e4m3")}, {"v", as(files.v, "e4m3")}, {"scale", {"fp32", {}, {0.5}}}});
    write_npy(folder.file("keep.npy"), {"bool", {4}, {1, 0, 1, 1}});
    write_npy(folder.file("ck.npy"), files.k);  // two pages of 4 keys
    write_npy(folder.file("cv.npy"), files.v);
    write_npy(folder.file("table.npy"), {"int32", {2, 1}, {1, 0}});
    write_npy(folder.file("packed.npy"), {"fp32", {8, 4, 8}, files.q.values});
    write_npy(folder.file("new.npy"), {"fp32", {2, 1, 4, 8}, std::vector<double>(64, 0.5)});

    int examples = 0;
    std::istringstream help(flashtile({"attend", "--help"}).out);
    for (std::string line; std::getline(help, line);) {
        if (line.rfind("  flashtile attend ", 0) != 0) continue;
        if (line.find("--device=cuda") != std::string::npos && !std::filesystem::exists("/dev/nvidia0")) continue;
        ++examples;
        SCOPED_TRACE(line);
        const std::string program = FLASHTILE_PROGRAM;
        const Ending ending =
            run({"env", "-C", folder.file(""), "sh", "-c", program + line.substr(std::string("  flashtile").size())});
        EXPECT_EQ(ending.exit_code, 0) << ending.err;
    }
    EXPECT_GE(examples, 7);
}

}  // namespace
}  // namespace flashtile::tests
