// tensor_file.h: .npy and .safetensors files, written and read as their descriptions say and by nothing of src/io, so
// that a fault there shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace flashtile::tests {

struct Tensor {
    std::string dtype = "fp32";  // fp64, fp32, fp16, bf16, e4m3 (.safetensors only), bool, uint8, int32 or int64
    std::vector<std::int64_t> shape;
    std::vector<double> values;  // row-major
};

void write_npy(const std::string& path, const Tensor& tensor);
void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors);

Tensor read_npy(const std::string& path);
Tensor read_safetensors(const std::string& path, const std::string& name);

// A .npy of zeros that takes no room on the disk.
void write_sparse_npy(const std::string& path, const std::vector<std::int64_t>& shape);

}  // namespace flashtile::tests
