// disk_cache.h: compiled kernels kept in a folder that is private to the user. What is found there is used only if it
// is whole, has the right checksum, and nobody else could have written it; anything else is as if it were not there.
// The folder's kernels take no more than a limit: those that were not used for the longest time go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace flashtile::gpu {

// FLASHTILE_CACHE, else $XDG_CACHE_HOME/flashtile, else ~/.cache/flashtile; empty where none is known.
std::filesystem::path cache_folder();

// In bytes: FLASHTILE_CACHE_MIB, else, and where that is no number, 512 MiB.
std::uint64_t cache_limit();

class DiskCache {
public:
    explicit DiskCache(std::filesystem::path folder, std::uint64_t limit = cache_limit())
        : folder_(std::move(folder)), limit_(limit) {}

    // `key` is a file name: the SHA-256 of what it was made from.
    std::optional<std::string> load(const std::string& key) const;

    // False where the folder cannot be written or trusted, the disk is full, or the limit is below this image alone.
    bool store(const std::string& key, std::string_view image);

    const std::filesystem::path& folder() const { return folder_; }
    std::uint64_t limit() const { return limit_; }

    struct Size {
        std::uint64_t kernels = 0, bytes = 0;
    };
    Size size() const;

    // Why the folder is not used, or "".
    std::string why_not() const;

private:
    std::filesystem::path folder_;
    std::uint64_t limit_;
    std::once_flag cleaned_;
};

}  // namespace flashtile::gpu
