// tensor_file.cpp: see tensor_file.h.
#include "tensor_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "oracle/precision.h"

namespace flashtile::tests {
namespace {

struct Type {
    std::string dtype;
    std::string npy;
    std::string safetensors;
    std::size_t size;
};

// NumPy saves ml_dtypes' bfloat16 as two bytes without a meaning.
const std::vector<Type> types = {{"fp64", "<f8", "F64", 8},  {"fp32", "<f4", "F32", 4},  {"fp16", "<f2", "F16", 2},
                                 {"bf16", "|V2", "BF16", 2}, {"bool", "|b1", "BOOL", 1}, {"uint8", "|u1", "U8", 1},
                                 {"int32", "<i4", "I32", 4}, {"int64", "<i8", "I64", 8}, {"e4m3", "", "F8_E4M3", 1}};

const Type& type_with(const std::string Type::*name, const std::string& value) {
    for (const Type& type : types)
        if (type.*name == value) return type;
    throw std::runtime_error("no type " + value);
}

template <class Bits>
std::string bytes_of(Bits bits) {
    std::string bytes(sizeof bits, '\0');
    std::memcpy(bytes.data(), &bits, sizeof bits);
    return bytes;
}

template <class Bits>
Bits bits_of(const std::string& bytes) {
    Bits bits;
    std::memcpy(&bits, bytes.data(), sizeof bits);
    return bits;
}

std::string encode(const std::string& dtype, double value) {
    if (dtype == "fp64") return bytes_of(value);
    if (dtype == "fp32") return bytes_of(static_cast<float>(value));
    if (dtype == "fp16") return bytes_of(oracle::to_fp16_bits(static_cast<float>(value)));
    if (dtype == "bf16") return bytes_of(oracle::to_bf16_bits(static_cast<float>(value)));
    if (dtype == "e4m3") return bytes_of(oracle::to_e4m3_bits(static_cast<float>(value)));
    if (dtype == "int32") return bytes_of(static_cast<std::int32_t>(value));
    if (dtype == "int64") return bytes_of(static_cast<std::int64_t>(value));
    return bytes_of(static_cast<std::uint8_t>(value));
}

double decode(const std::string& dtype, const std::string& bytes) {
    if (dtype == "fp32") return bits_of<float>(bytes);
    if (dtype == "fp16") return oracle::from_fp16_bits(bits_of<std::uint16_t>(bytes));
    if (dtype == "bf16") return oracle::from_bf16_bits(bits_of<std::uint16_t>(bytes));
    if (dtype == "e4m3") return oracle::from_e4m3_bits(bits_of<std::uint8_t>(bytes));
    throw std::runtime_error("a result in " + dtype);
}

std::string encode(const Tensor& tensor) {
    std::string bytes;
    for (const double value : tensor.values) bytes += encode(tensor.dtype, value);
    return bytes;
}

Tensor decode(const Type& type, const std::vector<std::int64_t>& shape, const std::string& bytes) {
    Tensor tensor{type.dtype, shape, {}};
    for (std::size_t n = 0; n < bytes.size(); n += type.size)
        tensor.values.push_back(decode(type.dtype, bytes.substr(n, type.size)));
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    if (static_cast<std::int64_t>(tensor.values.size()) != count)
        throw std::runtime_error("a file of " + std::to_string(tensor.values.size()) + " values, not " +
                                 std::to_string(count));
    return tensor;
}

std::string npy_header(const Type& type, const std::vector<std::int64_t>& shape) {
    std::string header = "{'descr': '" + type.npy + "', 'fortran_order': False, 'shape': (";
    for (const std::int64_t size : shape) header += std::to_string(size) + ",";
    header += "), }";
    header.append(63 - (10 + header.size()) % 64, ' ');
    header += '\n';
    return std::string("\x93NUMPY\x01\x00", 8) + bytes_of(static_cast<std::uint16_t>(header.size())) + header;
}

void write(const std::string& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    if (!(file << bytes).flush()) throw std::runtime_error("cannot write " + path);
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

void write_npy(const std::string& path, const Tensor& tensor) {
    write(path, npy_header(type_with(&Type::dtype, tensor.dtype), tensor.shape) + encode(tensor));
}

void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
    nlohmann::json header;
    std::string bytes;
    for (const auto& [name, tensor] : tensors) {
        const std::size_t begin = bytes.size();
        bytes += encode(tensor);
        header[name] = {{"dtype", type_with(&Type::dtype, tensor.dtype).safetensors},
                        {"shape", tensor.shape},
                        {"data_offsets", {begin, bytes.size()}}};
    }
    const std::string text = header.dump();
    write(path, bytes_of(static_cast<std::uint64_t>(text.size())) + text + bytes);
}

Tensor read_npy(const std::string& path) {
    const std::string file = read(path);
    const std::size_t length = bits_of<std::uint16_t>(file.substr(8, 2));
    const std::string header = file.substr(10, length);
    const std::regex form(R"(\{'descr': '([^']*)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n)");
    std::smatch parts;
    if (!std::regex_match(header, parts, form)) throw std::runtime_error("header " + header);
    std::vector<std::int64_t> shape;
    std::istringstream sizes(parts[2].str());
    for (std::string size; std::getline(sizes, size, ',');) shape.push_back(std::stoll(size));
    return decode(type_with(&Type::npy, parts[1].str()), shape, file.substr(10 + length));
}

Tensor read_safetensors(const std::string& path, const std::string& name) {
    const std::string file = read(path);
    const std::size_t length = bits_of<std::uint64_t>(file.substr(0, 8));
    const auto entry = nlohmann::json::parse(file.substr(8, length)).at(name);
    const std::size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    return decode(type_with(&Type::safetensors, entry.at("dtype")), entry.at("shape"),
                  file.substr(8 + length + begin, end - begin));
}

void write_sparse_npy(const std::string& path, const std::vector<std::int64_t>& shape) {
    const Type& type = type_with(&Type::dtype, "fp32");
    const std::string header = npy_header(type, shape);
    write(path, header);
    std::size_t bytes = type.size;
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    std::filesystem::resize_file(path, header.size() + bytes);
}

}  // namespace flashtile::tests
