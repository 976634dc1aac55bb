// jit_test.cpp: from a config to a loaded kernel, in processes of their own, with a fake driver and a fake compiler
// that count. Each test starts with an empty cache.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "cuda/jit/bundle.h"
#include "cuda/jit/compile.h"
#include "fake_image.h"
#include "flashtile/flashtile.h"
#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;

struct Jit : testing::Test {
    TemporaryFolder folder;
    std::map<std::string, std::string> environment = {
        {"FLASHTILE_CUDA_DRIVER", FAKE_DRIVER}, {"FLASHTILE_NVRTC", FAKE_NVRTC}, {"FLASHTILE_CACHE", cache()},
        {"FAKE_NVRTC_LOG", folder / "log"},     {"FLASHTILE_BUNDLE", ""},        {"FLASHTILE_KERNEL_SOURCES", ""},
    };

    std::string client = CLIENT;

    fs::path cache() const { return folder / "cache"; }
    std::ptrdiff_t compiles() const { return std::ranges::count(read_file(folder / "log"), '\n'); }
    std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(cache()), fs::directory_iterator()));
    }

    std::string command(const std::string& arguments) const {
        std::string text = "env";
        for (const auto& [name, value] : environment) text += " " + name + "=\"" + value + "\"";
        return text + " " EMULATOR " " + client + " " + arguments;
    }
    std::FILE* start(const std::string& arguments) const {
        return ::popen((command(arguments) + " 2>&1").c_str(), "r");
    }
    std::FILE* start_in_terminal(const std::string& arguments) const {
        return ::popen(("script -qec '" + command(arguments) + "' /dev/null").c_str(), "r");
    }
    std::FILE* start(int configs, int threads, int devices) const {
        return start("kernels " + std::to_string(configs) + " " + std::to_string(threads) + " " +
                     std::to_string(devices));
    }
    static std::string finish(std::FILE* running) {
        std::string text;
        char part[4096];
        for (std::size_t bytes; (bytes = std::fread(part, 1, sizeof part, running)) > 0;) text.append(part, bytes);
        const int status = ::pclose(running);
        EXPECT_EQ(status, 0) << text;
        return text;
    }
    std::string run(const std::string& arguments) const { return finish(start(arguments)); }
    std::string run(int configs, int threads = 1, int devices = 1) const {
        return finish(start(configs, threads, devices));
    }
};

TEST_F(Jit, CompilesOnceAndThenComesFromTheDisk) {
    EXPECT_EQ(run(3), "loads 3 contexts 1 shared 50000 mode 0 functions 3\n");
    EXPECT_EQ(compiles(), 3);
    EXPECT_EQ(run(3), "loads 3 contexts 1 shared 50000 mode 0 functions 3\n");
    EXPECT_EQ(compiles(), 3);
    EXPECT_EQ(entries(), 3u);
}

// A process numbers functions as it meets them; the cache knows them by what they compute.
TEST_F(Jit, FunctionsComeFromTheDiskInWhateverOrderTheyAreMet) {
    EXPECT_EQ(run("scores 's + 1.0' 's + 2.0' 's + 1.0'"), "loads 2 launches 3\n");
    EXPECT_EQ(compiles(), 2);
    EXPECT_EQ(run("scores 's + 2.0' 's + 1.0'"), "loads 2 launches 2\n");
    EXPECT_EQ(compiles(), 2);
    EXPECT_EQ(run("scores 's + 3.0'"), "loads 1 launches 1\n");
    EXPECT_EQ(compiles(), 3);
}

TEST_F(Jit, ManyThreadsAndDevicesCompileOnceAndLoadOnceADevice) {
    environment["FAKE_NVRTC_MILLISECONDS"] = "100";
    EXPECT_EQ(run(3, 16, 2), "loads 6 contexts 2 shared 50000 mode 0 functions 6\n");
    EXPECT_EQ(compiles(), 3);
}

TEST_F(Jit, TwoProcessesMayRace) {
    environment["FAKE_NVRTC_MILLISECONDS"] = "50";
    std::vector<std::FILE*> running;
    for (int n = 0; n < 4; ++n) running.push_back(start(4, 4, 2));
    for (std::FILE* each : running) EXPECT_EQ(finish(each), "loads 8 contexts 2 shared 50000 mode 0 functions 8\n");
    EXPECT_EQ(entries(), 4u);
    const auto before = compiles();
    EXPECT_GE(before, 4);
    run(4);
    EXPECT_EQ(compiles(), before);
}

TEST_F(Jit, ADamagedEntryIsCompiledAnew) {
    run(1);
    const fs::path entry = fs::directory_iterator(cache())->path();
    fs::resize_file(entry, fs::file_size(entry) / 2);
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
    EXPECT_EQ(compiles(), 2);
    run(1);
    EXPECT_EQ(compiles(), 2);
}

TEST_F(Jit, WithoutAPlaceOnDiskKernelsAreKeptInMemory) {
    write_file(cache(), "no folder");
    // The second device gets the first one's image.
    EXPECT_EQ(run(2, 1, 2), "loads 4 contexts 2 shared 50000 mode 0 functions 4\n");
    EXPECT_EQ(compiles(), 2);
}

TEST_F(Jit, ACacheOfNoSizeKeepsKernelsInMemory) {
    environment["FLASHTILE_CACHE_MIB"] = "0";
    EXPECT_EQ(run(2, 1, 2), "loads 4 contexts 2 shared 50000 mode 0 functions 4\n");
    EXPECT_EQ(compiles(), 2);
    EXPECT_FALSE(fs::exists(cache()));
    EXPECT_NE(run("info").find("\"bytes\": 0, \"limit\": 0"), std::string::npos);
}

TEST_F(Jit, ACompilersVersionAndTheGpusArchitectureAreKeptApart) {
    run(1);
    environment["FAKE_NVRTC_VERSION"] = "131";
    run(1);
    EXPECT_EQ(compiles(), 2);
    environment["FAKE_DRIVER_ARCHITECTURE"] = "90";
    run(1);
    EXPECT_EQ(compiles(), 3);
    EXPECT_NE(read_file(folder / "log").find("--gpu-architecture=sm_90a"), std::string::npos);
}

TEST_F(Jit, ACompilerOlderThanTheGpuMakesPtx) {
    environment["FAKE_DRIVER_ARCHITECTURE"] = "120";
    environment["FAKE_NVRTC_NEWEST"] = "90";
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
    EXPECT_NE(read_file(folder / "log").find("--gpu-architecture=compute_90 "), std::string::npos);
}

// sm_103 is newer than sm_100, which runs there, and older than sm_120, which does not.
TEST_F(Jit, ACompilerThatSkipsTheGpuMakesPtxForTheNearestOlderOne) {
    environment["FAKE_DRIVER_ARCHITECTURE"] = "103";
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
    EXPECT_NE(read_file(folder / "log").find("--gpu-architecture=compute_100 "), std::string::npos);
    EXPECT_NE(run("info").find("does not know sm_103: kernels are compiled to PTX for compute_100"), std::string::npos);
    environment["FAKE_DRIVER_ARCHITECTURE"] = "100";
    EXPECT_EQ(run("info").find("PTX"), std::string::npos);
}

TEST_F(Jit, LoadsWhileAStreamIsCaptured) {
    environment["FAKE_DRIVER_CAPTURING"] = "1";
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
}

TEST_F(Jit, AFailedCompileIsAnErrorWithTheLogAndTheConfig) {
    environment["FAKE_NVRTC_FAIL"] = "kernel.h(7): error: the reason";
    const std::string text = run(1, 8);
    EXPECT_TRUE(text.starts_with("error 4 NVRTC 13.0 (")) << text;
    EXPECT_NE(text.find("kernel.h(7): error: the reason"), std::string::npos) << text;
    EXPECT_NE(text.find("flashtile::KernelConfig{.kernel = flashtile::Kernel::forward_sm80, "), std::string::npos)
        << text;
    EXPECT_NE(text.find("--gpu-architecture=sm_80"), std::string::npos) << text;
    environment.erase("FAKE_NVRTC_FAIL");
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n") << "the failure was kept";
}

TEST_F(Jit, WithoutADriverTheErrorSaysWhatIsMissing) {
    environment["FLASHTILE_CUDA_DRIVER"] = "/nowhere/libcuda.so.1";
    const std::string text = run(1);
    EXPECT_TRUE(text.starts_with("error 2 no CUDA driver: looked for /nowhere/libcuda.so.1")) << text;
    EXPECT_NE(text.find("Install NVIDIA's driver, 525 or newer"), std::string::npos) << text;
}

TEST_F(Jit, ADriverThatIsTooOldOrHasNoGpuSaysSo) {
    environment["FAKE_DRIVER_VERSION"] = "11080";
    EXPECT_NE(run(1).find("serves CUDA 11.8; needed is CUDA 12.0"), std::string::npos);
    environment.erase("FAKE_DRIVER_VERSION");
    environment["FAKE_DRIVER_INIT"] = "100";
    EXPECT_NE(run(1).find("cuInit says the fake driver's reason (100)"), std::string::npos);
    environment.erase("FAKE_DRIVER_INIT");
    environment["FAKE_DRIVER_DEVICES"] = "1";
    EXPECT_TRUE(run(1, 1, 2).starts_with("error 1 device_id is 1, allowed is an ordinal of one of the 1 CUDA devices"));
}

TEST_F(Jit, WithoutACompilerTheErrorSaysWhatToInstallAndWhereItLooked) {
    environment["FLASHTILE_NVRTC"] = folder / "none";
    const std::string text = run(1);
    EXPECT_TRUE(text.starts_with("error 2 no NVRTC")) << text;
    EXPECT_NE(text.find("pip install nvidia-cuda-nvrtc"), std::string::npos) << text;
    EXPECT_NE(text.find("Looked in " + (folder / "none").string() + " (FLASHTILE_NVRTC)"), std::string::npos) << text;
    environment["FLASHTILE_NVRTC"] = FAKE_DRIVER;  // a library, but another
    EXPECT_NE(run(1).find("lacks nvrtcVersion"), std::string::npos);
    environment["FLASHTILE_NVRTC"] = FAKE_NVRTC;
    environment["FAKE_NVRTC_VERSION"] = "118";
    EXPECT_NE(run(1).find("is NVRTC 11.8; the kernels are C++20, which NVRTC knows since 12.0"), std::string::npos);
}

TEST_F(Jit, WhetherAProblemCanRunIsAnsweredWithoutACompile) {
    const std::string can = "cuda forward_sm80\ncuda backward_sm80\nloads 0 launches 0\n";
    EXPECT_EQ(run("can"), can);
    EXPECT_EQ(compiles(), 0);
    const std::string bundle = folder / "kernels.ftb";
    run("bundle " + bundle + " 80 1 1");  // 1: causal; and backward
    environment["FLASHTILE_NVRTC"] = folder / "none";
    const std::string text = run("can");
    EXPECT_TRUE(text.starts_with("no NVRTC")) << text;
    const std::string of_the_run = run("tile");  // that problem's plan, and then its forward with lse
    EXPECT_NE(of_the_run.find("error 2 " + text.substr(0, text.find('\n') + 1)), std::string::npos) << of_the_run;
    environment["FLASHTILE_BUNDLE"] = bundle;
    EXPECT_EQ(run("can"), can);
    environment["FAKE_DRIVER_DEVICES"] = "1";  // the client's problem lies on the second
    EXPECT_TRUE(run("can").starts_with("device_id is 1, allowed is an ordinal of one of the 1 CUDA devices"));
}

TEST_F(Jit, ALongCompileIsMentionedOnATerminalOnly) {
    environment["FAKE_NVRTC_MILLISECONDS"] = "1100";
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
    if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "script(1) is not installed";
    environment["FAKE_NVRTC_VERSION"] = "131";  // to compile again
    const std::string said = finish(start_in_terminal("kernels 1 1 1"));
    EXPECT_NE(said.find("flashtile: compiled a kernel for sm_80 in 1."), std::string::npos) << said;
}

// As the Python wheel has one. The client is linked to the library's objects, so that its folder is the library's.
TEST_F(Jit, ABundleBesideTheLibraryIsFound) {
    client = folder / "client";
    fs::copy_file(CLIENT, client);
    const std::string bundle = folder / "kernels.ftb";
    run("bundle " + bundle + " 80 1 0");  // 1: causal
    fs::remove_all(cache());
    environment["FLASHTILE_NVRTC"] = folder / "none";
    EXPECT_EQ(run("forward"), "loads 1 contexts 1 launches 2\n");
    const std::string other = run("scores 's + 1.0'");
    EXPECT_NE(other.find("pip install nvidia-cuda-nvrtc"), std::string::npos) << other;
    EXPECT_NE(other.find("the bundle " + bundle + " has 11 kernels, not this one"), std::string::npos) << other;

    std::string text = read_file(bundle);
    text.replace(text.find(FLASHTILE_VERSION_STRING), std::string(FLASHTILE_VERSION_STRING).size(), "0.0.9");
    write_file(bundle, text);
    EXPECT_TRUE(run("forward").starts_with("error 2 no NVRTC"));
    EXPECT_NE(run("info").find("kernels.ftb: is of version 0.0.9"), std::string::npos);
    environment["FLASHTILE_NVRTC"] = FAKE_NVRTC;
    EXPECT_EQ(run("forward"), "loads 1 contexts 1 launches 2\n");
}

// It was not asked for by name: one that lost some bits costs a compile, not the call.
TEST_F(Jit, ADamagedKernelInTheBundleBesideTheLibraryIsCompiled) {
    client = folder / "client";
    fs::copy_file(CLIENT, client);
    const std::string bundle = folder / "kernels.ftb";
    run("bundle " + bundle + " 80 1 0");
    fs::remove_all(cache());
    EXPECT_NE(run("info").find("\"kernels\": 11, \"damaged\": 0"), std::string::npos);
    std::string damaged = read_file(bundle);
    for (std::size_t at = damaged.find("FAKE "); at != std::string::npos; at = damaged.find("FAKE ", at + 1))
        damaged[at] ^= 1;
    write_file(bundle, damaged);
    const auto before = compiles();
    EXPECT_EQ(run("forward"), "loads 1 contexts 1 launches 2\n");
    EXPECT_EQ(compiles(), before + 1);
    EXPECT_NE(run("info").find("\"kernels\": 11, \"damaged\": 11"), std::string::npos);
    environment["FLASHTILE_NVRTC"] = folder / "none";
    const std::string text =
        run("forward");  // the cache is not looked into without the compiler whose version it names
    EXPECT_TRUE(text.starts_with("error 4 the bundle " + bundle + " is damaged")) << text;

    // One that was named is an error, whatever there is to compile with.
    environment["FLASHTILE_NVRTC"] = FAKE_NVRTC;
    environment["FLASHTILE_BUNDLE"] = bundle;
    EXPECT_TRUE(run("forward").starts_with("error 4 the bundle " + bundle + " is damaged"));
    EXPECT_EQ(compiles(), before + 1);
}

// The config that the client asks for first, as the fake compiler would have compiled it.
BundledKernel bundled(int architecture) {
    const Program program = program_for({.head_dim = 16, .Br = 64, .Bc = 64, .warps = 4}, architecture);
    return {key_of(program), target_name(architecture), "the client's", fake::image_of("from the bundle")};
}

TEST_F(Jit, ABundleNeedsNoCompiler) {
    const std::string path = folder / "kernels.ftb";
    write_bundle(path, {bundled(80)});
    environment["FLASHTILE_BUNDLE"] = path;
    environment["FLASHTILE_NVRTC"] = folder / "none";
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
    const std::string text = run(2);
    EXPECT_NE(text.find("the bundle " + path + " has 1 kernels, not this one"), std::string::npos) << text;
    EXPECT_NE(text.find(".head_dim = 32,"), std::string::npos) << text;
    environment["FLASHTILE_NVRTC"] = FAKE_NVRTC;
    EXPECT_EQ(run(2), "loads 2 contexts 1 shared 50000 mode 0 functions 2\n");
    EXPECT_EQ(compiles(), 1);
}

TEST_F(Jit, ABundleForAnotherGpuIsPassedBy) {
    write_bundle(folder / "kernels.ftb", {bundled(90)});
    environment["FLASHTILE_BUNDLE"] = folder / "kernels.ftb";
    EXPECT_EQ(run(1), "loads 1 contexts 1 shared 50000 mode 0 functions 1\n");
    EXPECT_EQ(compiles(), 1);
}

TEST_F(Jit, AWrongBundleIsAnErrorEveryTime) {
    write_file(folder / "kernels.ftb", "something else");
    environment["FLASHTILE_BUNDLE"] = folder / "kernels.ftb";
    EXPECT_TRUE(run(2).starts_with("error 1 the bundle " + (folder / "kernels.ftb").string() + ": is not a bundle"));
    EXPECT_EQ(compiles(), 0);
}

TEST_F(Jit, ACallGoesFromTheCInterfaceToItsLaunch) {
    EXPECT_EQ(run("forward"), "loads 1 contexts 1 launches 2\n");
    EXPECT_EQ(compiles(), 1);
}

TEST_F(Jit, LengthsOnTheDeviceAreCheckedWhereThatIsAskedFor) {
    EXPECT_EQ(run("lengths 0 60 100 60"), "launches 1\n");
    EXPECT_EQ(run("lengths 0 60 50 100"),
              "error 1 cu_seqlens_q[2] is 50, allowed is no less than the entry before, 60\nlaunches 0\n");
    EXPECT_EQ(run("lengths 0 60 101 0"),
              "error 1 cu_seqlens_q[2] is 101, allowed is at most the total, 100\nlaunches 0\n");
    EXPECT_EQ(run("lengths 0 60 100 61"),
              "error 1 seqused_k[0] is 61, allowed is 0 to the sequence's 60\nlaunches 0\n");
    environment["FAKE_DRIVER_CAPTURING"] = "1";
    EXPECT_TRUE(run("lengths 0 60 100 60").starts_with("error 1 check_values is 1 while the stream is captured"));
}

// Forward's kernel and backward's three; forward then loads none.
TEST_F(Jit, WhatIsPreparedIsNotWaitedFor) {
    EXPECT_EQ(run("prepare"), "4 of 4 prepared, loads 4\nloads 4 contexts 1 launches 2\n");
    EXPECT_EQ(compiles(), 4);
    environment["FAKE_NVRTC_FAIL"] = "the reason";
    environment["FLASHTILE_CACHE"] = folder / "empty";
    EXPECT_NE(run("prepare").find("the reason"), std::string::npos);
    environment["FLASHTILE_NVRTC"] = folder / "none";
    EXPECT_TRUE(run("prepare").starts_with("error 2 no NVRTC"));
}

// Of forward one kernel, of backward three, and one for the gradient of the bias where it will be asked for.
TEST_F(Jit, TheGradientOfABiasIsPreparedWhereItIsAskedFor) {
    EXPECT_EQ(run("prepare_bias"), "4 prepared\n5 prepared\n");
    EXPECT_EQ(compiles(), 5);
}

TEST_F(Jit, ABundleServesTheCallsItWasMadeFor) {
    const std::string path = folder / "kernels.ftb";
    // Forward with and without LSE: one for many queries, two whose keys are split, for one query and for some, and
    // what combines these; backward has three kernels; merge has one for each type of its parts; append_kv one.
    EXPECT_EQ(run("bundle " + path + " 80 " + std::to_string(FLASHTILE_WITH_CAUSAL) + " 1"), "14 of 14 kernels\n");
    const auto made = compiles();
    EXPECT_EQ(made, 14);
    EXPECT_EQ(run("load " + path), "loads 1 contexts 1 launches 2\n");
    environment["FLASHTILE_BUNDLE"] = path;
    environment["FLASHTILE_NVRTC"] = folder / "none";
    fs::remove_all(cache());
    EXPECT_EQ(run("forward"), "loads 1 contexts 1 launches 2\n");
    EXPECT_EQ(compiles(), made);
    EXPECT_FALSE(fs::exists(cache()));
}

// Their machine code is the same; the bundle has it once, and a GPU finds it under its own architecture.
TEST_F(Jit, KernelsForSm89AreThoseForSm86) {
    const std::string one = folder / "one.ftb", two = folder / "two.ftb";
    const std::string causal = " " + std::to_string(FLASHTILE_WITH_CAUSAL) + " 0";
    EXPECT_EQ(run("bundle " + one + " 86" + causal), "11 of 11 kernels\n");
    EXPECT_EQ(run("bundle " + two + " 86,89" + causal), "22 of 22 kernels\n");
    EXPECT_EQ(compiles(), 11);
    EXPECT_EQ(Bundle(two).kernels(), 22u);
    EXPECT_EQ(Bundle(two).targets(), (std::vector<std::string>{"sm_86", "sm_89"}));
    EXPECT_LT(fs::file_size(two), fs::file_size(one) * 5 / 4) << "an image more than once";
    // Alone they are compiled for their own GPU.
    EXPECT_EQ(run("bundle " + (folder / "alone.ftb").string() + " 89" + causal), "11 of 11 kernels\n");
    EXPECT_EQ(compiles(), 22);

    fs::remove_all(cache());
    environment["FLASHTILE_NVRTC"] = folder / "none";
    environment["FLASHTILE_BUNDLE"] = two;
    for (const char* architecture : {"86", "89"}) {
        environment["FAKE_DRIVER_ARCHITECTURE"] = architecture;
        EXPECT_EQ(run("forward"), "loads 1 contexts 1 launches 2\n") << architecture;
    }
}

// Minutes of work are not done again for a list of which one line has changed.
TEST_F(Jit, ABundleIsMadeOfWhatWasCompiledBefore) {
    EXPECT_EQ(run("bundle " + (folder / "first.ftb").string() + " 80 0 0"), "11 of 11 kernels\n");
    EXPECT_EQ(run("bundle " + (folder / "second.ftb").string() + " 80 0 1"), "14 of 14 kernels\n");
    EXPECT_EQ(compiles(), 14);
    EXPECT_EQ(run("bundle " + (folder / "third.ftb").string() + " 80 0 1"), "14 of 14 kernels\n");
    EXPECT_EQ(compiles(), 14);
    EXPECT_EQ(read_file(folder / "third.ftb"), read_file(folder / "second.ftb"));
}

TEST_F(Jit, ABundleOfOtherOptionsServesThemOnly) {
    const std::string path = folder / "kernels.ftb";
    EXPECT_EQ(run("bundle " + path + " 80 0 0"), "11 of 11 kernels\n");
    environment["FLASHTILE_NVRTC"] = folder / "none";
    EXPECT_NE(run("load " + path).find("has 11 kernels, not this one"), std::string::npos);
}

// Of the 14 causal kernels for forward and backward: without lse, few queries have one kernel a length and what
// combines.
TEST_F(Jit, ABundleCanBeForFewOrManyQueriesAlone) {
    const std::string path = folder / "kernels.ftb";
    const auto kernels = [&](unsigned options, int backward) {
        run("bundle " + path + " 80 " + std::to_string(options) + " " + std::to_string(backward));
        std::ifstream file(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const std::string few = kernels(FLASHTILE_ONLY_FEW_QUERIES | FLASHTILE_ONLY_WITHOUT_LSE, 0);
    EXPECT_NE(few.find(".kernel = flashtile::Kernel::split_forward_sm80"), std::string::npos);
    EXPECT_EQ(few.find(".lse = true"), std::string::npos);
    const std::string many = kernels(FLASHTILE_ONLY_MANY_QUERIES, 1);
    EXPECT_EQ(many.find(".kernel = flashtile::Kernel::split_forward_sm80"), std::string::npos);
    for (const char* kernel :
         {".kernel = flashtile::Kernel::forward_sm80", ".kernel = flashtile::Kernel::backward_sm80", ".lse = true"})
        EXPECT_NE(many.find(kernel), std::string::npos) << kernel;
    EXPECT_TRUE(run("bundle " + path + " 80 " + std::to_string(FLASHTILE_ONLY_WITHOUT_LSE) + " 1")
                    .starts_with("error 1 options hold ONLY_WITHOUT_LSE"));
    EXPECT_TRUE(
        run("bundle " + path + " 80 " + std::to_string(FLASHTILE_ONLY_FEW_QUERIES | FLASHTILE_ONLY_MANY_QUERIES) + " 0")
            .starts_with("error 1 options hold ONLY_FEW_QUERIES and ONLY_MANY_QUERIES"));
}

TEST_F(Jit, ABundleHasWindowsWhereTheyAreAskedFor) {
    for (const auto& [option, has] :
         {std::pair(FLASHTILE_WITH_CAUSAL, false), std::pair(FLASHTILE_WITH_WINDOW, true)}) {
        const std::string path = folder / "kernels.ftb";
        run("bundle " + path + " 80 " + std::to_string(option) + " 0");
        std::ifstream file(path, std::ios::binary);
        const std::string text(std::istreambuf_iterator<char>(file), {});
        EXPECT_NE(text.find(".band = true"), std::string::npos);
        EXPECT_EQ(text.find(".window = true") != std::string::npos, has);
    }
}

TEST_F(Jit, ABundleForHopperHoldsItsOwnKernels) {
    const std::string path = folder / "kernels.ftb";
    run("bundle " + path + " 90 0 1");
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (const char* kernel : {"Kernel::forward_sm90", "Kernel::backward_sm90"})
        EXPECT_NE(text.find(kernel), std::string::npos) << kernel;
}

TEST_F(Jit, ABundleOfTheForwardPassHoldsHoppersToo) {
    const std::string path = folder / "kernels.ftb";
    run("bundle " + path + " 90 0 0");
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(text.find(".kernel = flashtile::Kernel::forward_sm90"), std::string::npos);
    EXPECT_EQ(text.find(".kernel = flashtile::Kernel::backward"), std::string::npos);
}

TEST_F(Jit, ABundleForCachesHoldsTheirKernels) {
    const std::string path = folder / "kernels.ftb";
    run("bundle " + path + " 90 " + std::to_string(FLASHTILE_WITH_PAGES | FLASHTILE_WITH_SEQUSED) + " 1");
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (const char* kernel :
         {"forward_sm90", "combine_shares", "split_forward_sm80", "deal_splits", "combine", "append_kv"})
        EXPECT_NE(text.find(std::string(".kernel = flashtile::Kernel::") + kernel + ","), std::string::npos) << kernel;
    EXPECT_EQ(text.find(".kernel = flashtile::Kernel::backward"), std::string::npos) << "a cache has no gradient";
}

TEST_F(Jit, ABundleIsRefusedBeforeAnythingIsCompiled) {
    const std::string path = folder / "kernels.ftb";
    EXPECT_TRUE(run("bundle " + path + " 81 0 0").starts_with("error 1 architecture is 81, allowed is one of 80, 86"));
    EXPECT_TRUE(run("bundle /nowhere/kernels.ftb 80 0 0").starts_with("error 1 path is /nowhere/kernels.ftb"));
    EXPECT_TRUE(run("bundle " + path + " 80 " + std::to_string(FLASHTILE_WITH_BIAS_GRADIENT) + " 1")
                    .starts_with("error 1 options hold BIAS_GRADIENT"));
    environment["FAKE_NVRTC_NEWEST"] = "90";
    EXPECT_NE(run("bundle " + path + " 100 0 0").find("makes no machine code for sm_100"), std::string::npos);
    EXPECT_EQ(compiles(), 0);
    environment["FAKE_NVRTC_FAIL"] = "the reason";
    EXPECT_NE(run("bundle " + path + " 80 0 0").find("the reason"), std::string::npos);
    EXPECT_FALSE(fs::exists(path));
}

TEST_F(Jit, InfoSaysWhatIsThereAndWhatIsNot) {
    const auto has = [](const std::string& text, const std::string& part) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\nis not in\n" << text;
    };
    run(2);
    const std::string all = run("info");
    has(all, "\"driver\": {\"found\": true, \"path\": \"" FAKE_DRIVER "\", \"cuda\": \"13.0\"}");
    has(all,
        "{\"ordinal\": 1, \"name\": \"Fake 1\", \"target\": \"sm_80\", \"multiprocessors\": 108, "
        "\"shared_memory_per_block\": 166912, \"shared_memory_per_multiprocessor\": 167936, "
        "\"l2_bytes\": 41943040, \"note\": \"\"}");
    has(all, "\"nvrtc\": {\"found\": true, \"path\": \"" FAKE_NVRTC "\", \"version\": \"13.0\"");
    has(all, "\"sm_89\", \"sm_90a\"");
    has(all, "\"cache\": {\"folder\": \"" + cache().string() + "\", \"kernels\": 2, ");
    environment = {{"FLASHTILE_CUDA_DRIVER", "/no\\\\where"},
                   {"FLASHTILE_NVRTC", "/nowhere"},
                   {"FLASHTILE_CACHE", "/proc/none"},
                   {"FLASHTILE_BUNDLE", "/nowhere.ftb"}};
    const std::string none = run("info");
    has(none, "\"driver\": {\"found\": false, \"why_not\": \"no CUDA driver: looked for /no\\\\where");
    has(none, "\"devices\": [], ");
    has(none, "\"looked\": [\"/nowhere (FLASHTILE_NVRTC)\"]");
    has(none, "\"bundles\": [{\"why_not\": \"the bundle /nowhere.ftb: No such file or directory");
}

}  // namespace
}  // namespace flashtile::gpu
