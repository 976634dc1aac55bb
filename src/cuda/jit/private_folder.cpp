// private_folder.cpp: see private_folder.h.
#include "cuda/jit/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>

namespace flashtile::gpu {
namespace {

// "" where only this user can have written it, else the reason.
std::string why_not_trusted(const struct stat& status) {
    if (status.st_uid != ::geteuid()) return "belongs to another user, " + std::to_string(status.st_uid);
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "may be written by others";
    return "";
}

}  // namespace

PrivateFolder open_private_folder(const std::filesystem::path& path) {
    if (path.empty()) return {{}, "neither FLASHTILE_CACHE nor XDG_CACHE_HOME nor HOME is set"};
    Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat status {};
    if (!folder || ::fstat(folder.get(), &status) != 0) return {{}, std::strerror(errno)};
    std::string reason = why_not_trusted(status);
    if (!reason.empty()) return {{}, std::move(reason)};
    return {std::move(folder), ""};
}

void make_private_folder(const std::filesystem::path& path) {
    std::filesystem::path made;
    for (const std::filesystem::path& part : path) {
        made /= part;
        ::mkdir(made.c_str(), 0700);
    }
}

PrivateFile open_private_file(int folder, const std::string& name) {
    // Not blocking: someone may have put a pipe there.
    Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file && errno == ENOENT) return {};
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) return {{}, 0, std::strerror(errno)};
    if (!S_ISREG(status.st_mode)) return {{}, 0, "is no regular file"};
    std::string reason = why_not_trusted(status);
    if (!reason.empty()) return {{}, 0, std::move(reason)};
    return {std::move(file), static_cast<std::uint64_t>(status.st_size), ""};
}

std::vector<std::string> names_in(int folder) {
    std::vector<std::string> names;
    // The listing gets a descriptor of its own, since closedir closes it.
    const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy >= 0 ? ::fdopendir(copy) : nullptr, ::closedir);
    if (listing == nullptr) return names;
    while (const dirent* entry = ::readdir(listing.get())) {
        std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(std::move(name));
    }
    return names;
}

}  // namespace flashtile::gpu
