// available_memory.h: how much memory this process may still fill.
#pragma once

#include <cstdint>
#include <string>

namespace flashtile::cli {

// The least that the machine and every control group around this process have left; page cache counts as free.
std::uint64_t available_memory();

std::string format_bytes(std::uint64_t bytes);  // "1.5 GiB"

}  // namespace flashtile::cli
