// raw_file.h: tensor files put together from their parts as the formats' descriptions have them, so that a test can
// make each part wrong by itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace flashtile::tests {

// A .npy file; the length field is as the version has it.
std::string npy_file(int version, std::string_view header, std::string_view values);
std::string npy_header(std::string_view descr, std::string_view shape);  // shape as Python writes it, "(2, 3)"

std::string safetensors_file(std::string_view header, std::string_view values);
std::string header_of(const std::vector<std::string>& entries);  // {entry,entry}
// An entry of its header: "name":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}
std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::uint64_t begin,
                  std::uint64_t end);

template <class... Values>
std::string bytes_of(Values... values) {
    std::string bytes;
    (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
    return bytes;
}

std::string content(const std::filesystem::path& file);
void write(const std::filesystem::path& file, std::string_view content);

}  // namespace flashtile::tests
