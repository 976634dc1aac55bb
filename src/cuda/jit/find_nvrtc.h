// find_nvrtc.h: where NVIDIA's run-time compiler may lie on this machine: an environment variable, the loader's path,
// Python packages, beside this library, toolkit folders. No Python is started for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flashtile::gpu {

struct NvrtcPlaces {
    std::vector<std::string> found;   // what dlopen may be given, best first
    std::vector<std::string> looked;  // every place, for people
};

// FLASHTILE_NVRTC (a file or its folder) excludes all other places.
NvrtcPlaces nvrtc_places();

}  // namespace flashtile::gpu
