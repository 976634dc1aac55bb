// raw_file.cpp: see raw_file.h.
#include "raw_file.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace flashtile::tests {

std::string npy_file(int version, std::string_view header, std::string_view values) {
    std::string file = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
    const auto length = static_cast<std::uint32_t>(header.size());
    file += bytes_of(length).substr(0, version == 1 ? 2 : 4);
    return file.append(header).append(values);
}

std::string npy_header(std::string_view descr, std::string_view shape) {
    std::string header = "{'descr': '";
    return header.append(descr).append("', 'fortran_order': False, 'shape': ").append(shape).append(", }\n");
}

std::string safetensors_file(std::string_view header, std::string_view values) {
    return bytes_of(std::uint64_t{header.size()}).append(header).append(values);
}

std::string header_of(const std::vector<std::string>& entries) {
    std::string header(1, '{');
    for (const std::string& entry : entries) {
        if (header.size() > 1) header += ',';
        header += entry;
    }
    return header += '}';
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::uint64_t begin,
                  std::uint64_t end) {
    std::string text = "\"";
    text.append(name).append(R"(":{"dtype":")").append(dtype).append(R"(","shape":)").append(shape);
    text.append(R"(,"data_offsets":[)").append(std::to_string(begin)).append(",").append(std::to_string(end));
    return text.append("]}");
}

std::string content(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + file.string());
    return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const std::filesystem::path& file, std::string_view content) {
    std::ofstream stream(file, std::ios::binary);
    if (!(stream << content).flush()) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace flashtile::tests
