// tuned_tiles.h: the tuned tiles of this process: those of the file "choices" in the cache's folder, read once, and
// those that it was given. FLASHTILE_NO_CHOICES in the environment leaves the file unread. (File and variable keep the
// name that they had before tuned tiles were called so.)
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.h"
#include "cuda/tuned_tile.h"

namespace flashtile::gpu {

// Those for a device and this version of the library; none where there is no NVRTC, since a bundle has the tables'
// tiles. What is returned stays valid, and a further call is one load.
TunedTiles tuned_tiles_for(const Device& device);
std::vector<TunedTile> tuned_tiles_on(const DeviceFacts& device);

// A tuned tile as to_text() makes it, in place of an earlier one with its subject; `keep`: in the file too. Throws
// INVALID_ARGUMENT where the text is none or the file cannot be written.
void use_tuned_tile(std::string_view text, bool keep);

// From here on this process has none; `kept`: nor has the file. Throws as use_tuned_tile().
void forget_tuned_tiles(bool kept);

struct TunedTilesState {
    std::filesystem::path file;
    std::string why_not;           // why the file is not used, or ""
    std::vector<TunedTile> tiles;  // of this process, for whichever device and version
};
TunedTilesState tuned_tiles_state();

}  // namespace flashtile::gpu
