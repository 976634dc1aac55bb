// info.h: what this process has of CUDA, for people and programs.
#pragma once

#include <string>

namespace flashtile::gpu {

// JSON: the driver, the devices, NVRTC, the cache, the bundles; and of what is missing, why and where it was looked
// for. Makes no context on any device.
std::string info_json();

}  // namespace flashtile::gpu
