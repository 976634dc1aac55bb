// tile_fit.h: a kernel with a tile, where the tile fits the kernel and the GPU.
#pragma once

#include <limits>
#include <optional>
#include <span>

#include "cuda/device_facts.h"
#include "cuda/plan/plan.h"
#include "cuda/tiles/tile.h"

namespace flashtile::gpu {

// The config with this tile, but for its grid and its maps; nothing where the tile does not fit the kernel or the GPU.
std::optional<Launch> with_tile(KernelConfig config, const Tile& tile, const DeviceFacts& device);

// The first row of the table that is wide enough for the config's heads and fits, with at most `most_queries` in its
// tile.
std::optional<Launch> first_fit(const KernelConfig& config, std::span<const Tile> table, const DeviceFacts& device,
                                int most_queries = std::numeric_limits<int>::max());

}  // namespace flashtile::gpu
