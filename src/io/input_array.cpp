// input_array.cpp: see input_array.h.
#include "io/input_array.h"

#include <fmt/format.h>

#include <filesystem>

namespace flashtile::io {
namespace {

constexpr std::string_view npy = ".npy";
constexpr std::string_view safetensors = ".safetensors";

struct Name {
    std::string file, tensor;
};

// A file's name may hold a colon, so a name that ends in .npy or .safetensors is a file's as a whole.
Name split(const std::string& name) {
    if (name.ends_with(npy) || name.ends_with(safetensors)) return {name, ""};
    for (const std::string_view suffix : {npy, safetensors})
        if (const auto at = name.find(std::string(suffix) + ":"); at != std::string::npos)
            return {name.substr(0, at + suffix.size()), name.substr(at + suffix.size() + 1)};
    throw FileError(fmt::format("{}: allowed is a .npy file, a .safetensors file, or FILE.safetensors:TENSOR", name));
}

std::variant<NpyFile, SafetensorsFile> open(const std::string& name) {
    const auto [file, tensor] = split(name);
    if (file.ends_with(safetensors)) return SafetensorsFile(file);
    if (!tensor.empty()) throw FileError(fmt::format("{}: a .npy file has no named tensors", name));
    return NpyFile(file);
}

Array pick(const SafetensorsFile& file, const std::string& tensor) {
    if (tensor.empty() && file.tensors().size() == 1) return file.tensors().begin()->second;
    return file.at(tensor);
}

}  // namespace

InputArray::InputArray(const std::string& name) : file_name_(split(name).file), file_(open(name)) {
    if (const auto* tensors = std::get_if<SafetensorsFile>(&file_))
        array_ = pick(*tensors, split(name).tensor);
    else
        array_ = std::get<NpyFile>(file_).array();
}

}  // namespace flashtile::io
