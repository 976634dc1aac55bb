// own_folder.h: where the library lies that this code is part of.
#pragma once

#include <filesystem>

namespace flashtile::gpu {

// Of the shared library, or of the program that the library is linked into. Empty where the loader does not say.
std::filesystem::path own_folder();

}  // namespace flashtile::gpu
