// tuned_tiles_file.h: the file of tuned tiles: a line "flashtile choices 1", a line with the SHA-256 of the rest, and
// a line for each tile. Like the kernels beside it, it is private to the user, written whole or not at all, and used
// only where it is whole and nobody else could have written it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace flashtile::gpu {

inline constexpr const char* kTunedTilesFile = "choices";

struct TunedTileLines {
    std::vector<std::string> lines;
    std::string why_not;  // why the file is not used, or ""; a file that is not there holds nothing
};
TunedTileLines read_tuned_tiles(const std::filesystem::path& folder);

// Has `edit` change the lines, one process at a time. What cannot be used is replaced. "" where it worked, else the
// reason.
std::string edit_tuned_tiles(const std::filesystem::path& folder,
                             const std::function<void(std::vector<std::string>& lines)>& edit);

}  // namespace flashtile::gpu
