// memory.h: device memory, which is the host's. Each allocation ends at a page that faults, is filled with NaN when
// fresh, and faults when it has been freed.
#pragma once

#include <cstddef>
#include <string>

namespace emulator {

constexpr std::size_t kTotalMemory = std::size_t{8} << 30;

void* allocate(std::size_t bytes);  // null where there is no more
// Returns "" or what a kernel has done to the bytes around it; frees nothing where it is no allocation.
std::string free(void* address);
std::size_t allocated_bytes();
bool is_allocated(const void* address, std::size_t bytes);

// Which allocation an address is near to, in words.
std::string place_of(const void* address);

}  // namespace emulator
