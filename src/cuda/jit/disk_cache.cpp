// disk_cache.cpp: see disk_cache.h. An entry is a line "flashtile kernel 1", a line with its key, a line with the
// SHA-256 of the image, and the image.
#include "cuda/jit/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "cuda/jit/descriptor.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/whole_file.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;

std::string header(const std::string& key, std::string_view image) {
    return "flashtile kernel 1\n" + key + "\n" + sha256(image) + "\n";
}

// "" where only this user can have written it, else the reason.
std::string why_not_trusted(int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return std::strerror(errno);
    if (status.st_uid != ::geteuid()) return "belongs to another user, " + std::to_string(status.st_uid);
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "may be written by others";
    return "";
}

struct OpenFolder {
    Descriptor descriptor;  // where not open: why_not
    std::string why_not;
};

OpenFolder open_folder(const fs::path& path) {
    if (path.empty()) return {{}, "neither FLASHTILE_CACHE nor XDG_CACHE_HOME nor HOME is set"};
    Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return {{}, std::strerror(errno)};
    const std::string reason = why_not_trusted(folder.get());
    if (!reason.empty()) return {{}, reason};
    return {std::move(folder), ""};
}

void make_folders(const fs::path& path) {
    fs::path made;
    for (const fs::path& part : path) {
        made /= part;
        ::mkdir(made.c_str(), 0700);  // what cannot be made cannot be opened either, and is reported there
    }
}

}  // namespace

fs::path cache_folder() {
    const auto variable = [](const char* name) {
        const char* value = std::getenv(name);
        return fs::path(value != nullptr ? value : "");
    };
    if (fs::path wish = variable("FLASHTILE_CACHE"); !wish.empty()) return wish;
    if (const fs::path caches = variable("XDG_CACHE_HOME"); caches.is_absolute()) return caches / "flashtile";
    if (const fs::path home = variable("HOME"); !home.empty()) return home / ".cache" / "flashtile";
    return {};
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
    const OpenFolder folder = open_folder(folder_);
    if (!folder.descriptor) return std::nullopt;
    // Not blocking: someone may have put a pipe there.
    const Descriptor file(
        ::openat(folder.descriptor.get(), key.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    if (!file || !why_not_trusted(file.get()).empty() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
        return std::nullopt;
    const std::string entry = file.read(static_cast<std::size_t>(status.st_size), 0);
    const std::size_t start = header(key, "").size();
    if (entry.size() < start || !entry.starts_with(header(key, std::string_view(entry).substr(start))))
        return std::nullopt;
    return entry.substr(start);
}

bool DiskCache::store(const std::string& key, std::string_view image) {
    make_folders(folder_);
    const OpenFolder folder = open_folder(folder_);
    if (!folder.descriptor) return false;
    std::call_once(cleaned_, remove_leftovers, folder.descriptor.get());
    return write_whole(folder.descriptor.get(), key, {header(key, image), image}, 0600).empty();
}

std::string DiskCache::why_not() const {
    const OpenFolder folder = open_folder(folder_);
    if (!folder.descriptor) return folder.why_not;
    return ::faccessat(folder.descriptor.get(), ".", W_OK, AT_EACCESS) == 0 ? "" : std::strerror(errno);
}

}  // namespace flashtile::gpu
