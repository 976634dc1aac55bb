// tuned_tiles.h: the tuned tiles of this process. It reads the file "choices" in the cache's folder once, and callers
// can add tiles. FLASHTILE_NO_CHOICES in the environment leaves the file unread. (The file and the variable have the
// name that tuned tiles had earlier.)
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.h"
#include "cuda/tuned_tile.h"
#include "cuda/tuned_tiles_file.h"

namespace flashtile::gpu {

// The tuned tiles for a device and this version of the library. There are none without NVRTC, since a bundle only has
// kernels with the tables' tiles. The result stays valid. After the first call a call is one load.
TunedTiles tuned_tiles_for(const Device& device);
std::vector<TunedTile> tuned_tiles_on(const DeviceFacts& device);

// Adds a tuned tile, as to_text() writes it; it replaces an earlier one with the same subject. With `keep` the file
// gets it, too. Throws INVALID_ARGUMENT if the text is no tuned tile or the file cannot be written.
void use_tuned_tile(std::string_view text, bool keep);

// Removes all tuned tiles from this process, and with `kept` from the file, too. Throws what use_tuned_tile() throws.
void forget_tuned_tiles(bool kept);

// The lines that the file holds, which are none of a GPU's alone (cpu/tuned_blocks.h).
TunedTileLines kept_choices();
// Throws INVALID_ARGUMENT if the file cannot be written.
void edit_kept_choices(const std::function<void(std::vector<std::string>& lines)>& edit);

struct TunedTilesState {
    std::filesystem::path file;
    std::string why_not;           // why the file is not used, or ""
    std::vector<TunedTile> tiles;  // of this process, for all devices and versions
};
TunedTilesState tuned_tiles_state();

}  // namespace flashtile::gpu
