// device_facts.h: what a plan needs to know about a GPU, as plain numbers, so that plans can be made and tested for
// GPUs that are not there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace flashtile::gpu {

struct DeviceFacts {
    std::string name;
    int architecture = 0;  // 10 * major + minor of the compute capability
    int multiprocessors = 0;
    int shared_memory_per_block = 0;  // bytes that a block may opt in to
    int shared_memory_per_multiprocessor = 0;
    int l2_bytes = 0;

    bool operator==(const DeviceFacts&) const = default;
};

// GPUs by name, for `flashtile info --plan` and for tests.
std::span<const DeviceFacts> known_devices();

// One of them; case and spaces do not count. Throws INVALID_ARGUMENT with the list.
const DeviceFacts& known_device(std::string_view name);

}  // namespace flashtile::gpu
