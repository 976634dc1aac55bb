// bundle.cpp: see bundle.h.
#include "cuda/jit/bundle.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/whole_file.h"
#include "flashtile/version.h"

namespace flashtile::gpu {
namespace {

constexpr const char* kMagic = "flashtile bundle 2";
constexpr std::size_t kLongestFirstLine = 128;
constexpr std::uint64_t kLargestIndex = 64 << 20;  // a kernel takes some 500 bytes of it

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw Error(FLASHTILE_INVALID_ARGUMENT,
                "the bundle " + path + ": " + why +
                    ", allowed is a file made by `flashtile compile` of this version, " FLASHTILE_VERSION_STRING);
}

}  // namespace

Bundle::Bundle(std::string path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe must not block
    if (!file_) refuse(path_, std::strerror(errno));
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) refuse(path_, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) refuse(path_, "is not a regular file");
    const auto file_bytes = static_cast<std::uint64_t>(status.st_size);

    const std::string start = file_.read(kLongestFirstLine, 0);
    const std::size_t line = start.find('\n');
    if (!start.starts_with(kMagic) || line == std::string::npos) refuse(path_, "is not a bundle");
    std::istringstream about(start.substr(std::strlen(kMagic), line - std::strlen(kMagic)));
    std::uint64_t index_bytes = 0;
    std::string version, index_checksum;
    if (!(about >> version >> index_bytes >> index_checksum)) refuse(path_, "is not a bundle");
    if (version != FLASHTILE_VERSION_STRING) refuse(path_, "is of version " + version);
    if (index_bytes > file_bytes) refuse(path_, "is cut short");
    if (index_bytes > kLargestIndex) refuse(path_, "its index is damaged");
    const std::string index = file_.read(index_bytes, static_cast<off_t>(line + 1));
    if (sha256(index) != index_checksum) refuse(path_, "its index is damaged");

    const std::uint64_t images = line + 1 + index_bytes;
    std::istringstream lines(index);
    for (std::string text; std::getline(lines, text);) {
        std::istringstream words(text);
        std::string key, target;
        Entry entry;
        if (!(words >> key >> entry.checksum >> entry.offset >> entry.bytes >> target))
            refuse(path_, "its index is damaged");
        entry.offset += images;
        if (entry.offset > file_bytes || entry.bytes > file_bytes - entry.offset) refuse(path_, "is cut short");
        entries_[key] = entry;
        if (std::ranges::find(targets_, target) == targets_.end()) targets_.push_back(target);
    }
}

std::optional<std::string> Bundle::read(const Entry& entry) const {
    std::string image = file_.read(entry.bytes, static_cast<off_t>(entry.offset));
    if (sha256(image) != entry.checksum) return std::nullopt;
    return image;
}

std::optional<std::string> Bundle::find(const std::string& key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    std::optional<std::string> image = read(found->second);
    if (!image)
        throw Error(FLASHTILE_DEVICE_ERROR, "the bundle " + path_ + " is damaged: the kernel " + key +
                                                " in it does not have its checksum. Make it anew");
    return image;
}

std::size_t Bundle::damaged() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(entries_, [this](const auto& each) { return !read(each.second); }));
}

namespace {

// That of the file which is replaced: who may not read it, may not read the new one.
unsigned mode_for(const std::string& path) {
    struct stat replaced {};
    return ::stat(path.c_str(), &replaced) == 0 ? replaced.st_mode & 0777 : 0644;
}

}  // namespace

void write_bundle(const std::string& path, const std::vector<BundledKernel>& kernels) {
    std::string index, images;
    std::map<std::string, std::size_t> offsets;  // by checksum
    for (const BundledKernel& kernel : kernels) {
        const std::string checksum = sha256(kernel.image);
        const auto [known, is_new] = offsets.emplace(checksum, images.size());
        index += kernel.key + " " + checksum + " " + std::to_string(known->second) + " " +
                 std::to_string(kernel.image.size()) + " " + kernel.target + " " + kernel.config + "\n";
        if (is_new) images += kernel.image;
    }
    const std::string first = std::string(kMagic) + " " FLASHTILE_VERSION_STRING " " + std::to_string(index.size()) +
                              " " + sha256(index) + "\n";
    const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
    const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::string reason = folder ? write_whole(folder.get(), std::filesystem::path(path).filename(),
                                                    {first, index, images}, mode_for(path))
                                      : std::strerror(errno);
    if (!reason.empty())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "path is " + path + ", which cannot be written: " + reason);
}

}  // namespace flashtile::gpu
