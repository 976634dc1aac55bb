// array.h: what a tensor file holds: a type, a shape, and row-major little-endian values, which are not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace flashtile::io {

// A file that cannot be read or written, or is not what it says it is. The message names the file.
class FileError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class DType { fp64, fp32, fp16, bf16, e4m3, boolean, int64, int32, uint8 };

std::size_t size_of(DType dtype);
const char* name(DType dtype);

struct Array {
    DType dtype = DType::fp32;
    std::vector<std::int64_t> shape;
    const void* data = nullptr;  // not owned, and as aligned as the file has it

    std::size_t elements() const;
    std::size_t bytes() const { return elements() * size_of(dtype); }
};

// Bytes of an array; nothing where a size is negative or the product passes 63 bits, even if another size is zero.
std::optional<std::size_t> checked_bytes(std::span<const std::int64_t> shape, std::size_t element_size);

std::string to_string(std::span<const std::int64_t> shape);  // "(2, 3)"

}  // namespace flashtile::io
