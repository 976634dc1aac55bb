// find_nvrtc.cpp: see find_nvrtc.h.
#include "cuda/jit/find_nvrtc.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "core/environment.h"
#include "cuda/jit/own_folder.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;

// Newest first. The unversioned name comes last: it belongs to a toolkit's development files.
constexpr std::array kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// What CUDA's toolkits call this machine: servers with Arm CPUs, as Grace is one; before them, and on Jetson, aarch64.
#ifdef __aarch64__
constexpr std::array kMachines = {"sbsa-linux", "aarch64-linux"};
#else
constexpr std::array kMachines = {"x86_64-linux"};
#endif

// The folders of `folder` whose names start with `start`, later versions first.
std::vector<fs::path> children(const fs::path& folder, const std::string& start) {
    std::vector<fs::path> list;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        if (it->path().filename().string().starts_with(start)) list.push_back(it->path());
    std::ranges::sort(list, std::greater{});
    return list;
}

class Search {
public:
    // A folder that may hold the library itself.
    void folder(const fs::path& named) {
        std::error_code error;
        const fs::path where = fs::weakly_canonical(named, error);  // lib64 may be lib
        if (is_new(where)) take(where);
    }

    // A site-packages folder: the PyPI package nvidia-cuda-nvrtc as laid out for CUDA 13 and for CUDA 12.
    void packages(const fs::path& named) {
        std::error_code error;
        const fs::path site = fs::weakly_canonical(named, error);
        if (!is_new(site)) return;
        take(site / "nvidia" / "cu13" / "lib");
        take(site / "nvidia" / "cuda_nvrtc" / "lib");
    }

    // A Python environment's root, which need not be that of the Python now running.
    void python(const fs::path& root) {
        if (!root.is_absolute()) return;
        for (const auto* lib : {"lib", "lib64", "local/lib"})
            for (const fs::path& version : children(root / lib, "python3"))
                for (const auto* site : {"site-packages", "dist-packages"}) {
                    std::error_code error;
                    if (fs::is_directory(version / site, error)) packages(version / site);
                }
    }

    void toolkit(const fs::path& root) {
        if (!root.is_absolute()) return;
        folder(root / "lib64");
        folder(root / "lib");
        for (const char* machine : kMachines) folder(root / "targets" / machine / "lib");
    }

    NvrtcPlaces places;

private:
    bool is_new(const fs::path& where) {
        if (where.empty() || std::ranges::find(places.looked, where.string()) != places.looked.end()) return false;
        places.looked.push_back(where.string());
        return true;
    }
    void take(const fs::path& where) {
        std::error_code error;
        for (const char* name : kNames)
            if (fs::exists(where / name, error)) return places.found.push_back((where / name).string());
    }
};

// The folders of PATH that have a python3. Of its relative entries, and of those below, anyone who chooses the
// process's working folder would choose the library.
std::vector<fs::path> python_folders() {
    std::vector<fs::path> list;
    std::istringstream path(environment("PATH"));
    std::error_code error;
    for (std::string folder; std::getline(path, folder, ':');)
        if (fs::path(folder).is_absolute() && fs::exists(fs::path(folder) / "python3", error))
            list.push_back(fs::canonical(folder, error));  // /bin may be /usr/bin
    return list;
}

}  // namespace

NvrtcPlaces nvrtc_places() {
    Search search;
    if (const std::string wish = environment("FLASHTILE_NVRTC"); !wish.empty()) {
        std::error_code error;
        if (fs::is_directory(wish, error))
            search.folder(wish);
        else
            search.places = {{wish}, {wish}};
        search.places.looked.back() += " (FLASHTILE_NVRTC)";
        return search.places;
    }
    search.places.found.assign(kNames.begin(), kNames.end());
    search.places.looked.emplace_back("the loader's path");
    search.python(environment("VIRTUAL_ENV"));
    for (const fs::path& folder : python_folders()) {
        search.python(folder.parent_path());
        if (folder.filename() == "shims")  // pyenv's: they start the Python of one of its versions
            for (const fs::path& version : children(folder.parent_path() / "versions", "")) search.python(version);
    }
    if (const std::string home = environment("HOME"); !home.empty()) search.python(fs::path(home) / ".local");
    // Installed into an environment's lib folder this library lies beside python3.x; as a Python package, below
    // site-packages.
    const fs::path own = own_folder();
    search.folder(own);
    search.python(own.parent_path());
    for (fs::path above = own; above.has_relative_path(); above = above.parent_path())
        if (above.filename() == "site-packages" || above.filename() == "dist-packages") search.packages(above);
    search.toolkit(environment("CUDA_HOME"));
    search.toolkit(environment("CUDA_PATH"));
    for (const fs::path& root : children("/usr/local", "cuda")) search.toolkit(root);
    search.toolkit("/opt/cuda");
    return search.places;
}

}  // namespace flashtile::gpu
