// disk_cache.h: compiled kernels kept in a folder that is private to the user. What is found there is used only if it
// is whole, has the right checksum, and nobody else could have written it; anything else is as if it were not there.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace flashtile::gpu {

// FLASHTILE_CACHE, else $XDG_CACHE_HOME/flashtile, else ~/.cache/flashtile; empty where none is known.
std::filesystem::path cache_folder();

class DiskCache {
public:
    explicit DiskCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

    // `key` is a file name: hexadecimal.
    std::optional<std::string> load(const std::string& key) const;

    // False where the folder cannot be written or trusted, or the disk is full.
    bool store(const std::string& key, std::string_view image);

    const std::filesystem::path& folder() const { return folder_; }

    // Why the folder is not used, or "".
    std::string why_not() const;

private:
    std::filesystem::path folder_;
    std::once_flag cleaned_;
};

}  // namespace flashtile::gpu
