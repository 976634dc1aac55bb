// disk_cache.cpp: see disk_cache.h. An entry is a line "flashtile kernel 1", a line with its key, a line with the
// SHA-256 of the image, and the image. When it was last used is its time of modification, which a look-up sets: file
// systems that are mounted for speed keep no other.
#include "cuda/jit/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "core/environment.h"
#include "cuda/jit/private_folder.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/whole_file.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kStandardLimit = 512 * kMiB;
constexpr std::uint64_t kLargestEntry = 1024 * kMiB;  // what is larger is no kernel, and might take all memory

std::string header(const std::string& key, std::string_view image) {
    return "flashtile kernel 1\n" + key + "\n" + sha256(image) + "\n";
}

struct Entry {
    std::string name;
    std::uint64_t bytes;
    timespec used;
};

std::vector<Entry> entries_in(int folder) {
    constexpr std::size_t kKeyLength = 64;
    std::vector<Entry> entries;
    for (std::string& name : names_in(folder)) {
        if (name.size() != kKeyLength || name.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
        struct stat status {};
        // What is gone meanwhile has no size.
        if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
        entries.push_back({std::move(name), static_cast<std::uint64_t>(status.st_size), status.st_mtim});
    }
    return entries;
}

std::uint64_t total(const std::vector<Entry>& entries) {
    std::uint64_t bytes = 0;
    for (const Entry& entry : entries) bytes += entry.bytes;
    return bytes;
}

// Removes the entries that were used least recently, but for `newest`, until the others are within the limit. Another
// process may remove the same ones; one that is reading an entry keeps what it has opened.
void keep_within(int folder, std::uint64_t limit, const std::string& newest) {
    std::vector<Entry> entries = entries_in(folder);
    std::uint64_t bytes = total(entries);
    if (bytes <= limit) return;
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::tuple(e.used.tv_sec, e.used.tv_nsec); });
    for (const Entry& entry : entries) {
        if (bytes <= limit) break;
        if (entry.name == newest) continue;
        if (::unlinkat(folder, entry.name.c_str(), 0) == 0 || errno == ENOENT) bytes -= entry.bytes;
    }
}

}  // namespace

fs::path cache_folder() {
    if (fs::path wish = environment("FLASHTILE_CACHE"); !wish.empty()) return wish;
    if (const fs::path caches = environment("XDG_CACHE_HOME"); caches.is_absolute()) return caches / "flashtile";
    if (const fs::path home = environment("HOME"); !home.empty()) return home / ".cache" / "flashtile";
    return {};
}

std::uint64_t cache_limit() {
    const std::string text = environment("FLASHTILE_CACHE_MIB");
    std::uint64_t mib = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mib);
    if (error != std::errc() || end != text.data() + text.size()) return kStandardLimit;
    return std::min(mib, std::numeric_limits<std::uint64_t>::max() / kMiB) * kMiB;
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
    const PrivateFolder folder = open_private_folder(folder_);
    if (!folder.descriptor) return std::nullopt;
    const PrivateFile file = open_private_file(folder.descriptor.get(), key);
    if (!file.descriptor) return std::nullopt;
    if (file.bytes > kLargestEntry) return std::nullopt;
    const std::string entry = file.descriptor.read(file.bytes, 0);
    const std::size_t start = header(key, "").size();
    if (entry.size() < start || !entry.starts_with(header(key, std::string_view(entry).substr(start))))
        return std::nullopt;
    ::futimens(file.descriptor.get(), nullptr);  // used now
    return entry.substr(start);
}

bool DiskCache::store(const std::string& key, std::string_view image) {
    const std::string head = header(key, image);
    if (head.size() + image.size() > limit_) return false;
    make_private_folder(folder_);
    const PrivateFolder folder = open_private_folder(folder_);
    if (!folder.descriptor) return false;
    std::call_once(cleaned_, remove_leftovers, folder.descriptor.get());
    if (!write_whole(folder.descriptor.get(), key, {head, image}, 0600).empty()) return false;
    keep_within(folder.descriptor.get(), limit_, key);
    return true;
}

DiskCache::Size DiskCache::size() const {
    const PrivateFolder folder = open_private_folder(folder_);
    if (!folder.descriptor) return {};
    const std::vector<Entry> entries = entries_in(folder.descriptor.get());
    return {entries.size(), total(entries)};
}

std::string DiskCache::why_not() const {
    const PrivateFolder folder = open_private_folder(folder_);
    if (!folder.descriptor) return folder.why_not;
    return ::faccessat(folder.descriptor.get(), ".", W_OK, AT_EACCESS) == 0 ? "" : std::strerror(errno);
}

}  // namespace flashtile::gpu
