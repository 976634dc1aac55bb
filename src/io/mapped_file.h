// mapped_file.h: a whole file as read-only memory, without a copy.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace flashtile::io {

class MappedFile {
public:
    // Throws FileError where the file cannot be opened or is not a regular one.
    explicit MappedFile(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return bytes_; }

private:
    std::span<const std::byte> bytes_;
};

}  // namespace flashtile::io
