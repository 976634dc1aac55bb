// private_folder.h: a folder of the user's own, and files in it that nobody else can have written: what is kept there
// decides what runs on the GPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cuda/jit/descriptor.h"

namespace flashtile::gpu {

struct PrivateFolder {
    Descriptor descriptor;  // where not open: why_not
    std::string why_not;
};

PrivateFolder open_private_folder(const std::filesystem::path& path);

// Makes it and what is above it, where they are not there. What cannot be made cannot be opened, and is reported there.
void make_private_folder(const std::filesystem::path& path);

struct PrivateFile {
    Descriptor descriptor;  // where not open: why_not
    std::uint64_t bytes = 0;
    std::string why_not;  // "" too where there is no such file
};

// `folder` is an open folder's descriptor.
PrivateFile open_private_file(int folder, const std::string& name);

// What lies in an open folder, in no order; without "." and "..".
std::vector<std::string> names_in(int folder);

}  // namespace flashtile::gpu
