// bundle.h: many compiled kernels in one file, made ahead of time for machines without NVRTC or without patience. The
// file is a line "flashtile bundle 2 VERSION BYTES SHA256" about the index, the index, and the images. The index has a
// line a kernel: key, SHA-256, offset among the images, bytes, target, config. Kernels of equal images share one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cuda/jit/descriptor.h"

namespace flashtile::gpu {

struct BundledKernel {
    std::string key;     // key_of(program)
    std::string target;  // "sm_90a"
    std::string config;
    std::string image;
};

class Bundle {
public:
    // Throws INVALID_ARGUMENT where the file is no bundle, is cut short, or its index is damaged.
    explicit Bundle(std::string path);

    // Throws DEVICE_ERROR where the image is damaged.
    std::optional<std::string> find(const std::string& key) const;

    const std::string& path() const { return path_; }
    std::size_t kernels() const { return entries_.size(); }
    std::size_t damaged() const;  // how many of them do not have their checksums; reads the whole file
    const std::vector<std::string>& targets() const { return targets_; }

private:
    struct Entry {
        std::string checksum;
        std::uint64_t offset, bytes;
    };
    std::optional<std::string> read(const Entry& entry) const;  // nothing where it is damaged

    std::string path_;
    Descriptor file_;  // stays open: what was checked is what is read, though the file be replaced
    std::map<std::string, Entry> entries_;
    std::vector<std::string> targets_;
};

// Throws INVALID_ARGUMENT where it cannot be written.
void write_bundle(const std::string& path, const std::vector<BundledKernel>& kernels);

}  // namespace flashtile::gpu
