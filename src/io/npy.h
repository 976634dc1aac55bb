// npy.h: NumPy's .npy files, versions 1 to 3: one C-ordered little-endian array a file. NumPy has no bf16: files that
// hold one by the name of ml_dtypes ("bfloat16", or the raw "|V2" that it saves) are read, and none is written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "io/array.h"
#include "io/mapped_file.h"

namespace flashtile::io {

// The array in `file`, which must outlive it. Throws FileError, with `file_name` in the message.
Array parse_npy(std::span<const std::byte> file, const std::string& file_name);

class NpyFile {
public:
    explicit NpyFile(const std::filesystem::path& path);
    const Array& array() const { return array_; }

private:
    MappedFile file_;
    Array array_;
};

// What precedes the values in a .npy file. Throws FileError for bf16, saying what to do instead.
std::string npy_header(DType dtype, std::span<const std::int64_t> shape, const std::string& file_name);

void write_npy(const std::filesystem::path& path, const Array& array);

}  // namespace flashtile::io
