// own_folder.cpp: see own_folder.h.
#include "cuda/jit/own_folder.h"

#include <dlfcn.h>

namespace flashtile::gpu {

std::filesystem::path own_folder() {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
    std::error_code error;
    return std::filesystem::absolute(info.dli_fname, error).parent_path();
}

}  // namespace flashtile::gpu
