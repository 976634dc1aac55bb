// output_array.h: an array that is computed straight into its file. The format follows from the file's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/array.h"
#include "io/output_file.h"

namespace flashtile::io {

// Throws FileError unless a file of this name can hold such an array: its ending, and bf16 in .npy.
void check_output_format(const std::string& file, DType dtype);

class OutputArray {
public:
    // Reserves the room; `tensor` is its name in a .safetensors file.
    OutputArray(const std::string& file, const std::string& tensor, DType dtype,
                const std::vector<std::int64_t>& shape);

    void* data() { return file_.bytes().data() + header_size_; }  // aligned to 64 bytes

    void flush() { file_.flush(); }
    void commit() { file_.commit(); }

private:
    OutputArray(const std::string& file, const std::string& header, std::size_t bytes);

    std::size_t header_size_;
    OutputFile file_;
};

}  // namespace flashtile::io
