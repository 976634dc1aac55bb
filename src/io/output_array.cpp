// output_array.cpp: see output_array.h.
#include "io/output_array.h"

#include <fmt/format.h>

#include <cstring>

#include "io/npy.h"
#include "io/safetensors.h"

namespace flashtile::io {
namespace {

std::string header_of(const std::string& file, const std::string& tensor, const Array& array) {
    if (file.ends_with(".npy")) return npy_header(array.dtype, array.shape, file);
    if (file.ends_with(".safetensors")) return safetensors_header({{tensor, array}});
    throw FileError(fmt::format("{}: allowed is a name that ends in .npy or .safetensors", file));
}

}  // namespace

void check_output_format(const std::string& file, DType dtype) {
    header_of(file, "", {dtype, {}, nullptr});
}

OutputArray::OutputArray(const std::string& file, const std::string& tensor, DType dtype,
                         const std::vector<std::int64_t>& shape)
    : OutputArray(file, header_of(file, tensor, {dtype, shape, nullptr}), Array{dtype, shape, nullptr}.bytes()) {}

OutputArray::OutputArray(const std::string& file, const std::string& header, std::size_t bytes)
    : header_size_(header.size()), file_(file, header.size() + bytes) {
    std::memcpy(file_.bytes().data(), header.data(), header.size());
}

}  // namespace flashtile::io
