// own_folder.cpp: see own_folder.h.
#include "cuda/jit/own_folder.h"

#include <dlfcn.h>

namespace flashtile::gpu {

std::filesystem::path own_folder() {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
    std::error_code error;
    const std::filesystem::path file = info.dli_fname;
    // Of a program that this code is linked into, the name may be that of its command, without a folder.
    if (!file.has_parent_path()) return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    return std::filesystem::absolute(file, error).parent_path();
}

}  // namespace flashtile::gpu
