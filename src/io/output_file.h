// output_file.h: a file that appears whole or not at all. It is written under a temporary name in the same folder, with
// all its room reserved at the start (so that a full disk is an error before work begins), and renamed at the end.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "io/unfinished.h"

namespace flashtile::io {

class OutputFile {
public:
    // Throws FileError where the folder cannot be written, the disk lacks room, or `path` is something other than a
    // regular file. A symbolic link is followed.
    OutputFile(const std::filesystem::path& path, std::size_t bytes);
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile();  // without commit(): nothing is left

    std::span<std::byte> bytes() { return bytes_; }

    // Writes all bytes to the disk. commit() then gives the file its name, replacing a file that had it. With several
    // files, flush all of them first, so that little can go wrong between the commits.
    void flush();
    void commit();

private:
    void close() noexcept;

    std::filesystem::path path_;
    Unfinished temporary_;
    int descriptor_ = -1;
    std::span<std::byte> bytes_;
};

}  // namespace flashtile::io
