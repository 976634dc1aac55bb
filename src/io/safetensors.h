// safetensors.h: .safetensors files: named tensors behind a JSON header.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/array.h"
#include "io/mapped_file.h"

namespace flashtile::io {

struct SafetensorsContent {
    std::map<std::string, Array> tensors;
    std::map<std::string, std::string> unreadable;  // tensors of types that flashtile has no use for: name -> type
    std::map<std::string, std::string> metadata;
};

// What `file` holds; it must outlive the arrays. Throws FileError, with `file_name` in the message.
SafetensorsContent parse_safetensors(std::span<const std::byte> file, const std::string& file_name);

class SafetensorsFile {
public:
    explicit SafetensorsFile(const std::filesystem::path& path);

    const std::map<std::string, Array>& tensors() const { return content_.tensors; }
    const std::map<std::string, std::string>& metadata() const { return content_.metadata; }
    bool contains(const std::string& name) const { return content_.tensors.contains(name); }
    // Throws FileError, listing what there is.
    const Array& at(const std::string& name) const;

private:
    std::string name_;
    MappedFile file_;
    SafetensorsContent content_;
};

using NamedArrays = std::vector<std::pair<std::string, Array>>;

// What precedes the values of the tensors, which follow each other in this order.
std::string safetensors_header(const NamedArrays& tensors);

void write_safetensors(const std::filesystem::path& path, const NamedArrays& tensors);

}  // namespace flashtile::io
