// bundle.h: many compiled kernels in one file, made ahead of time for machines without NVRTC or without patience. The
// file is a line "flashtile bundle 3 VERSION BYTES REST SHA256", the index, of so many bytes and with this checksum,
// and the rest of the file: what the images are made from, and for people the configs, a line a kernel. The index has a
// line a kernel: key, the image's SHA-256 and bytes, offset and bytes of what stands in the file, the line of its base,
// target. In the file stands the image (base -1), or its difference from the image of an earlier line (difference.h).
// Equal images stand there once.
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
    std::string config;  // by which alike images are found
    std::string image;
};

class Bundle {
public:
    // Throws INVALID_ARGUMENT where the file is no bundle, is cut short, or its index is damaged.
    explicit Bundle(std::string path);

    // Throws DEVICE_ERROR where the image is damaged.
    std::optional<std::string> find(const std::string& key) const;

    const std::string& path() const { return path_; }
    std::size_t kernels() const { return places_.size(); }
    std::size_t damaged() const;  // how many of them do not have their checksums; reads the whole file
    const std::vector<std::string>& targets() const { return targets_; }

private:
    struct Entry {
        std::string checksum;
        std::uint64_t bytes, offset, stored;
        std::int64_t base;
        int depth;  // how many images are made before it
    };
    std::optional<std::string> read(const Entry& entry) const;  // nothing where it is damaged
    std::optional<std::string> made(const Entry& entry) const;  // the same without a look at the checksum

    std::string path_;
    Descriptor file_;  // stays open: what was checked is what is read, though the file be replaced
    std::vector<Entry> entries_;
    std::map<std::string, std::size_t> places_;  // by key
    std::vector<std::string> targets_;
};

// Throws INVALID_ARGUMENT where it cannot be written.
void write_bundle(const std::string& path, const std::vector<BundledKernel>& kernels);

}  // namespace flashtile::gpu
