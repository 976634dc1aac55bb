// attend_refusal_test.cpp: what `flashtile attend` refuses: the exit code is 2, one message names the argument, and no
// file is left behind.
#include <gtest/gtest.h>

#include <fstream>

#include "attention_files.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

class Refused : public testing::Test {
protected:
    Refused() {
        const Sizes sizes;
        const Arranged files = arrange(random_problem(sizes), sizes);
        write_npy(folder_.file("q.npy"), files.q);
        write_npy(folder_.file("k.npy"), files.k);
        write_npy(folder_.file("v.npy"), files.v);
        write_safetensors(folder_.file("layer.safetensors"), {{"q", files.q}, {"k", files.k}, {"v", files.v}});
        write_npy(folder_.file("int32.npy"), {"int32", {2, 37, 6, 24}, std::vector<double>(2 * 37 * 6 * 24)});
        write_npy(folder_.file("fp16.npy"), {"fp16", files.k.shape, files.k.values});
        write_npy(folder_.file("narrow.npy"), {"fp32", {2, 53, 2, 23}, std::vector<double>(2 * 53 * 2 * 23)});
        write_npy(folder_.file("row.npy"), {"fp32", {24}, std::vector<double>(24)});
        write_npy(folder_.file("rank5.npy"), {"fp32", {1, 1, 1, 1, 1}, {1.0}});
        std::ofstream(folder_.file("text.npy")) << "no tensor\n";
        std::filesystem::create_symlink("q.npy", folder_.file("link.npy"));
        std::filesystem::create_symlink("/dev/full", folder_.file("device.npy"));
        std::filesystem::create_directory(folder_.file("folder.npy"));
    }

    // Runs in the folder, with --q, --k, --v and --out unless they are among `arguments`.
    void expect_refused(const Command& arguments, const std::string& message) const {
        Command command = {"env", "-C", folder_.file(""), FLASHTILE_PROGRAM, "attend"};
        for (const char* name : {"q", "k", "v", "out"}) {
            const std::string flag = std::string("--") + name;
            if (std::find(arguments.begin(), arguments.end(), flag) == arguments.end())
                command.insert(command.end(), {flag, std::string(name) + ".npy"});
        }
        command.insert(command.end(), arguments.begin(), arguments.end());
        SCOPED_TRACE(testing::PrintToString(arguments));
        const auto before = folder_.names();
        const Ending ending = run(command);
        EXPECT_EQ(ending.exit_code, 2);
        EXPECT_EQ(ending.out, "");
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
        EXPECT_EQ(folder_.names(), before);
    }

    TemporaryFolder folder_;
};

TEST_F(Refused, Flags) {
    expect_refused({"--no-such-flag"}, "--no-such-flag");
    expect_refused({"--causal", "--causal=top-left"}, "--causal: At Most 1 required but received 2");
    expect_refused({"--out", ""}, "--out: is '', allowed is the name of a file");
    expect_refused({"--lse", ""}, "--lse: is '', allowed is the name of a file");
    expect_refused({"stray"}, "stray");
    expect_refused({"--causal=diagonal"}, "--causal: diagonal not in {bottom-right,top-left}");
    expect_refused({"--window=5"}, "--window");
    expect_refused({"--window=1,2,3"}, "3");
    expect_refused({"--window=left,right"}, "--window");
    expect_refused({"--window=-2,5"}, "window_left is -2, allowed is -1 (open) or more");
    expect_refused({"--window=5,-7"}, "window_right is -7, allowed is -1 (open) or more");
    expect_refused({"--scale=nan"}, "scale is nan, allowed is a finite number");
    expect_refused({"--scale=1e300"}, "scale is inf, allowed is a finite number");
    expect_refused({"--scale=wide"}, "--scale");
    expect_refused({"--softcap=-1"}, "softcap is -1, allowed is 0 (off) or a number from 1e-30");
    expect_refused({"--softcap=1e-50"}, "--softcap: is 1e-50, allowed is 0 (off) or a number from 1e-30");
    expect_refused({"--dropout=1"}, "dropout is 1, allowed is a probability in [0, 1)");
    expect_refused({"--dropout=-0.1"}, "dropout is -0.1, allowed is a probability in [0, 1)");
    expect_refused({"--dropout=nan"}, "dropout is nan, allowed is a probability in [0, 1)");
    expect_refused({"--seed=-1"}, "--seed: is -1, allowed is a whole number from 0 to 2^64 - 1");
    expect_refused({"--seed=18446744073709551616"}, "--seed: is 18446744073709551616");
    expect_refused({"--layout=sbhd"}, "--layout: sbhd not in {bshd,bhsd}");
    expect_refused({"--dtype=fp8"}, "--dtype: fp8 not in {bf16,fp16,fp32}");
    expect_refused({"--threads=-1"}, "--threads: Value -1 not in range 0 to 4096");
    expect_refused({"--isa=mmx"}, "--isa: mmx not in");
    expect_refused({"--device=tpu"}, "--device: tpu not in {cpu,cuda}");
}

TEST_F(Refused, Inputs) {
    expect_refused({"--k", "missing.npy"}, "missing.npy: cannot be opened: No such file or directory");
    expect_refused({"--k", "text.npy"}, "text.npy: not a .npy file");
    expect_refused({"--k", "folder.npy"}, "folder.npy: not a regular file");
    expect_refused({"--k", "k.pt"}, "k.pt: allowed is a .npy file, a .safetensors file, or FILE.safetensors:TENSOR");
    expect_refused({"--k", "k.npy:k"}, "k.npy:k: a .npy file has no named tensors");
    expect_refused({"--k", "layer.safetensors:key"}, "key");
    expect_refused({"--k", "layer.safetensors"}, "layer.safetensors");
    expect_refused({"--q", "int32.npy"}, "--q (int32.npy) holds int32, allowed is fp64, fp32, fp16, bf16 or e4m3");
    expect_refused({"--k", "fp16.npy"}, "--k (fp16.npy) holds fp16 and --q fp32: say with --dtype which to compute in");
    expect_refused({"--mask", "q.npy"}, "--mask (q.npy) holds fp32, allowed is bool or uint8");
    expect_refused({"--bias", "int32.npy"}, "--bias (int32.npy) holds int32, allowed is fp64, fp32, fp16 or bf16");
    expect_refused({"--alibi", "int32.npy"}, "--alibi (int32.npy) holds int32, allowed is fp64, fp32, fp16 or bf16");
}

TEST_F(Refused, Shapes) {
    expect_refused({"--q", "row.npy"}, "--q (row.npy) has shape (24,), allowed is (s, d), (s, h, d) or (b, s, h, d)");
    expect_refused({"--q", "rank5.npy"}, "--q (rank5.npy) has shape (1, 1, 1, 1, 1), allowed is");
    expect_refused({"--k", "row.npy"}, "--k (row.npy) has shape (24,), allowed is");
    expect_refused({"--k", "narrow.npy"}, "k.shape is (2, 53, 2, 23)");
    expect_refused({"--v", "q.npy"}, "v.shape is (2, 37, 6, 24)");
    expect_refused({"--layout=bhsd"}, "allowed is heads a multiple of k's");
    expect_refused({"--bias", "k.npy"}, "bias.shape is (2, 53, 2, 24), allowed is one that broadcasts to");
    expect_refused({"--alibi", "row.npy"}, "alibi_slopes.shape is (24), allowed is (heads) = (6)");
}

TEST_F(Refused, Outputs) {
    expect_refused({"--out", "out.txt"}, "out.txt: allowed is a name that ends in .npy or .safetensors");
    expect_refused({"--out", "nowhere/out.npy"}, "nowhere/out.npy: cannot be written in its folder");
    expect_refused({"--lse", "nowhere/lse.npy"}, "nowhere/lse.npy: cannot be written in its folder");
    expect_refused({"--out", "folder.npy"}, "folder.npy: exists and is not a regular file");
    expect_refused({"--out", "device.npy"}, "device.npy: exists and is not a regular file");
    expect_refused({"--dtype=bf16"}, "out.npy: NumPy has no bf16: write a .safetensors file");
}

TEST_F(Refused, OutputsThatAreInputsOrEachOther) {
    const Tensor before = read_npy(folder_.file("q.npy"));
    expect_refused({"--out", "q.npy"}, "--out is q.npy, allowed is another file than that of --q");
    expect_refused({"--out", "./folder.npy/../v.npy"}, "allowed is another file than that of --v");
    expect_refused({"--out", "link.npy"}, "--out is link.npy, allowed is another file than that of --q");
    expect_refused({"--lse", "k.npy"}, "--lse is k.npy, allowed is another file than that of --k");
    expect_refused({"--q", "layer.safetensors:q", "--out", "layer.safetensors"}, "than that of --q");
    expect_refused({"--lse", "out.npy"}, "--lse is out.npy, allowed is another file than that of --out");
    EXPECT_EQ(read_npy(folder_.file("q.npy")).values, before.values);
}

// 1 TiB of input in a sparse file, which takes little room on the disk.
TEST_F(Refused, WhatWouldNotFitInMemory) {
    write_sparse_npy(folder_.file("huge.npy"), {std::int64_t{1} << 31, 128});
    expect_refused({"--q", "huge.npy", "--k", "huge.npy", "--v", "huge.npy"},
                   "this takes 4.0 TiB of memory for inputs, outputs and workspace, and ");
    // A converted copy counts, and a result.
    expect_refused({"--q", "huge.npy", "--k", "huge.npy", "--v", "huge.npy", "--dtype=fp16"}, "this takes 2.0 TiB");
}

}  // namespace
}  // namespace flashtile::tests
