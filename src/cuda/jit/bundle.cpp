// bundle.cpp: see bundle.h.
#include "cuda/jit/bundle.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "cuda/jit/difference.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/whole_file.h"
#include "flashtile/version.h"

namespace flashtile::gpu {
namespace {

constexpr const char* kMagic = "flashtile bundle 3";
constexpr std::size_t kLongestFirstLine = 128;
constexpr std::uint64_t kLargestIndex = 64 << 20;  // a kernel takes some 170 bytes of it
constexpr std::uint64_t kLargestImage = 64 << 20;  // kernels have some 50,000 bytes
constexpr int kDeepest = 16;                       // bases of bases: each costs the first call a read and a copy

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
    std::uint64_t index_bytes = 0, rest_bytes = 0;
    std::string version, index_checksum;
    if (!(about >> version >> index_bytes >> rest_bytes >> index_checksum)) refuse(path_, "is not a bundle");
    if (version != FLASHTILE_VERSION_STRING) refuse(path_, "is of version " + version);
    const std::uint64_t behind = file_bytes - (line + 1);
    if (index_bytes > behind || rest_bytes != behind - index_bytes) refuse(path_, "is cut short");
    if (index_bytes > kLargestIndex) refuse(path_, "its index is damaged");
    const std::string index = file_.read(index_bytes, static_cast<off_t>(line + 1));
    if (sha256(index) != index_checksum) refuse(path_, "its index is damaged");

    const std::uint64_t images = line + 1 + index_bytes;
    std::istringstream lines(index);
    for (std::string text; std::getline(lines, text);) {
        std::istringstream words(text);
        std::string key, target;
        Entry entry{};
        if (!(words >> key >> entry.checksum >> entry.bytes >> entry.offset >> entry.stored >> entry.base >> target) ||
            entry.bytes > kLargestImage || entry.base < -1 || entry.base >= static_cast<std::int64_t>(entries_.size()))
            refuse(path_, "its index is damaged");
        entry.offset += images;
        if (entry.offset > file_bytes || entry.stored > file_bytes - entry.offset) refuse(path_, "is cut short");
        if (entry.base >= 0) entry.depth = entries_[static_cast<std::size_t>(entry.base)].depth + 1;
        if (entry.depth > kDeepest) refuse(path_, "its index is damaged");
        places_[key] = entries_.size();
        entries_.push_back(entry);
        if (std::ranges::find(targets_, target) == targets_.end()) targets_.push_back(target);
    }
}

std::optional<std::string> Bundle::made(const Entry& entry) const {
    std::string stored = file_.read(entry.stored, static_cast<off_t>(entry.offset));
    if (entry.base < 0) return stored;
    const std::optional<std::string> base = made(entries_[static_cast<std::size_t>(entry.base)]);
    if (!base) return std::nullopt;
    return restored(*base, stored, entry.bytes);
}

std::optional<std::string> Bundle::read(const Entry& entry) const {
    std::optional<std::string> image = made(entry);
    if (image && sha256(*image) != entry.checksum) image.reset();
    return image;
}

std::optional<std::string> Bundle::find(const std::string& key) const {
    const auto found = places_.find(key);
    if (found == places_.end()) return std::nullopt;
    std::optional<std::string> image = read(entries_[found->second]);
    if (!image)
        throw Error(FLASHTILE_DEVICE_ERROR, "the bundle " + path_ + " is damaged: the kernel " + key +
                                                " in it does not have its checksum. Make it anew");
    return image;
}

std::size_t Bundle::damaged() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(places_, [this](const auto& each) { return !read(entries_[each.second]); }));
}

namespace {

// That of the file which is replaced: who may not read it, may not read the new one.
unsigned mode_for(const std::string& path) {
    struct stat replaced {};
    return ::stat(path.c_str(), &replaced) == 0 ? replaced.st_mode & 0777 : 0644;
}

// How an image is kept.
struct Kept {
    std::string stored;
    std::int64_t base = -1;
    int depth = 0;
    std::size_t offset = 0;
};

// The words of a kernel's target and config, by which likely bases are found.
std::vector<std::string> words_of(const BundledKernel& kernel) {
    std::istringstream text(kernel.target + " " + kernel.config);
    return {std::istream_iterator<std::string>(text), {}};
}

// The least of an image by itself and its differences from those of the earlier kernels whose configs are most alike.
Kept least(std::size_t n, const std::vector<BundledKernel>& kernels, const std::vector<Kept>& kept,
           const std::vector<std::vector<std::string>>& words) {
    constexpr std::size_t kTried = 6;
    std::vector<std::pair<std::size_t, std::size_t>> alike;  // differing words, kernel
    for (std::size_t other = 0; other < n; ++other) {
        if (kept[other].depth >= kDeepest || words[other].size() != words[n].size()) continue;
        std::size_t differing = 0;
        for (std::size_t word = 0; word < words[n].size(); ++word)
            differing += words[n][word] != words[other][word] ? 1 : 0;
        alike.emplace_back(differing, other);
    }
    std::ranges::sort(alike);
    Kept best{.stored = kernels[n].image};
    for (const auto& [_, other] : std::span(alike).first(std::min(alike.size(), kTried))) {
        std::string stored = difference(kernels[other].image, kernels[n].image);
        if (stored.size() < best.stored.size())
            best = {
                .stored = std::move(stored), .base = static_cast<std::int64_t>(other), .depth = kept[other].depth + 1};
    }
    return best;
}

}  // namespace

void write_bundle(const std::string& path, const std::vector<BundledKernel>& kernels) {
    std::string index, images, configs;
    std::vector<std::vector<std::string>> words(kernels.size());
    std::ranges::transform(kernels, words.begin(), words_of);
    std::vector<Kept> kept(kernels.size());
    std::map<std::string, std::size_t> earlier;  // kernels with an image, by its checksum
    for (std::size_t n = 0; n < kernels.size(); ++n) {
        const std::string checksum = sha256(kernels[n].image);
        if (const auto [equal, is_new] = earlier.emplace(checksum, n); is_new) {
            kept[n] = least(n, kernels, kept, words);
            kept[n].offset = images.size();
            images += kept[n].stored;
        } else {
            kept[n] = kept[equal->second];
        }
        index += kernels[n].key + " " + checksum + " " + std::to_string(kernels[n].image.size()) + " " +
                 std::to_string(kept[n].offset) + " " + std::to_string(kept[n].stored.size()) + " " +
                 std::to_string(kept[n].base) + " " + kernels[n].target + "\n";
        configs += kernels[n].config + "\n";
    }
    const std::string first = std::string(kMagic) + " " FLASHTILE_VERSION_STRING " " + std::to_string(index.size()) +
                              " " + std::to_string(images.size() + configs.size()) + " " + sha256(index) + "\n";
    const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
    const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::string reason = folder ? write_whole(folder.get(), std::filesystem::path(path).filename(),
                                                    {first, index, images, configs}, mode_for(path))
                                      : std::strerror(errno);
    if (!reason.empty())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "path is " + path + ", which cannot be written: " + reason);
}

}  // namespace flashtile::gpu
