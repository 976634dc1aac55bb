// find_nvrtc_test.cpp: where the compiler is looked for, in trees laid out as the packages lay them out.
#include "cuda/jit/find_nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

struct FindNvrtc : testing::Test {
    TemporaryFolder folder;
    Environment wish{"FLASHTILE_NVRTC", ""}, venv{"VIRTUAL_ENV", ""}, path{"PATH", "/nowhere"}, home{"HOME", ""},
        cuda_home{"CUDA_HOME", ""}, cuda_path{"CUDA_PATH", ""};

    std::string put(const std::string& name) const {
        write_file(folder / name, "");
        return folder / name;
    }
    // The files found below the test's folder, best first.
    std::vector<std::string> found() const {
        std::vector<std::string> list = nvrtc_places().found;
        std::erase_if(list, [&](const std::string& each) { return !each.starts_with(folder.path().string()); });
        return list;
    }
};

using List = std::vector<std::string>;

TEST_F(FindNvrtc, TheVariableExcludesAllElse) {
    const std::string file = put("cuda/lib64/libnvrtc.so.12");
    const Environment toolkit("CUDA_HOME", folder / "cuda");
    {
        const Environment by_file("FLASHTILE_NVRTC", "/some/file.so");
        EXPECT_EQ(nvrtc_places().found, List{"/some/file.so"});
        EXPECT_EQ(nvrtc_places().looked, List{"/some/file.so (FLASHTILE_NVRTC)"});
    }
    const Environment by_folder("FLASHTILE_NVRTC", folder / "cuda/lib64");
    EXPECT_EQ(nvrtc_places().found, List{file});
    const Environment empty_folder("FLASHTILE_NVRTC", folder.path());
    EXPECT_EQ(nvrtc_places().found, List{});
}

TEST_F(FindNvrtc, TheLoadersPathComesFirst) {
    EXPECT_EQ(nvrtc_places().found.front(), "libnvrtc.so.13");
    EXPECT_EQ(nvrtc_places().looked.front(), "the loader's path");
}

TEST_F(FindNvrtc, PythonPackagesOfBothLayouts) {
    const std::string older = put("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
    const Environment environment("VIRTUAL_ENV", folder / "venv");
    EXPECT_EQ(found(), List{older});
    const std::string newer = put("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
    EXPECT_EQ(found(), (List{newer, older}));
    put("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc-builtins.so.13.0");  // no library to open
    EXPECT_EQ(found(), (List{newer, older}));
}

TEST_F(FindNvrtc, ThePythonsOnThePathWithoutStartingThem) {
    put("first/bin/python");  // not python3
    put("first/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
    write_file(folder / "second/bin/python3", "exit 1");
    const std::string second = put("second/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
    put("pyenv/shims/python3");
    const std::string shim = put("pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
    const std::string list = (folder / "first/bin").string() + "::" + (folder / "second/bin").string() + ":" +
                             (folder / "pyenv/shims").string();
    const Environment environment("PATH", list);
    EXPECT_EQ(found(), (List{second, shim}));
}

// Whoever chooses the folder that a process works in must not choose its libraries.
TEST_F(FindNvrtc, NoRelativeFolders) {
    for (const char* root : {"here", "here/.local", "here/toolkit"}) {
        put(std::string(root) + "/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        put(std::string(root) + "/lib64/libnvrtc.so");
    }
    write_file(folder / "here/bin/python3", "");
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    const Environment a("PATH", "here/bin:."), b("VIRTUAL_ENV", "here"), c("HOME", "here"),
        d("CUDA_HOME", "here/toolkit");
    EXPECT_EQ(found(), List{});
    std::filesystem::current_path(before);
}

TEST_F(FindNvrtc, TheUsersOwnPackagesAndToolkits) {
    const std::string own = put("home/.local/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
    const std::string toolkit = put("toolkit/lib64/libnvrtc.so");
    const Environment a("HOME", folder / "home"), b("CUDA_HOME", folder / "toolkit");
    EXPECT_EQ(found(), (List{own, toolkit}));
    const auto looked = nvrtc_places().looked;
    EXPECT_NE(std::ranges::find(looked, (folder / "toolkit/lib64").string()), looked.end());
}

// A toolkit may hold those of other machines too.
TEST_F(FindNvrtc, OfAToolkitOnlyThisMachinesOwn) {
#ifdef __aarch64__
    const std::string own = "sbsa-linux", other = "x86_64-linux";
#else
    const std::string own = "x86_64-linux", other = "sbsa-linux";
#endif
    const Environment a("CUDA_HOME", folder / "toolkit");
    put("toolkit/targets/" + other + "/lib/libnvrtc.so.13");
    EXPECT_EQ(found(), List{});
    const std::string library = put("toolkit/targets/" + own + "/lib/libnvrtc.so.13");
    EXPECT_EQ(found(), List{library});
    std::filesystem::create_directory_symlink(folder / ("toolkit/targets/" + own + "/lib"), folder / "toolkit/lib64");
    EXPECT_EQ(found(), List{library}) << "by its real name, once";
}

}  // namespace
}  // namespace flashtile::gpu
