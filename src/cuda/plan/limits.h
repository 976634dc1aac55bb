// limits.h: what no kernel here takes, whichever candidate is asked, and the error that says so.
#pragma once

#include <cstdint>
#include <string>

#include "core/problem.h"
#include "cuda/device_facts.h"

namespace flashtile::gpu {

[[noreturn]] void unsupported(const std::string& message);

// Throws UNSUPPORTED for a GPU that is too old.
void check_architecture(const DeviceFacts& device);

// As check_architecture, and for sizes and origins that kernels do not count in.
void check_limits(const Problem& problem, const DeviceFacts& device);

// True where a backward kernel takes such problems; check_backward_limits() throws where none does.
bool backward_takes(const Problem& problem);
void check_backward_limits(const Problem& problem);

// The message where no tile of the pass's kernels fits the GPU's shared memory.
std::string no_room(const Problem& problem, const DeviceFacts& device, const char* pass);

// ceil(rows / tile)
constexpr std::int64_t blocks_of(std::int64_t rows, int tile) {
    return (rows + tile - 1) / tile;
}

// The number, where a grid can be so large; else throws UNSUPPORTED.
std::int64_t checked_blocks(std::int64_t blocks);

// Thread blocks that have Br queries of a head each.
std::int64_t query_blocks(const Problem& problem, int Br);

}  // namespace flashtile::gpu
