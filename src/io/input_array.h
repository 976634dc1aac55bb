// input_array.h: an array in a file of either format, named as users name it: FILE or FILE:TENSOR.
#pragma once

#include <string>
#include <variant>

#include "io/array.h"
#include "io/npy.h"
#include "io/safetensors.h"

namespace flashtile::io {

class InputArray {
public:
    // `name` is a .npy file, or a .safetensors file and the name of a tensor in it; the tensor's name may be left out
    // where there is one only.
    explicit InputArray(const std::string& name);

    const std::string& file() const { return file_name_; }  // without the tensor's name
    const Array& array() const { return array_; }

private:
    std::string file_name_;
    std::variant<NpyFile, SafetensorsFile> file_;
    Array array_;
};

}  // namespace flashtile::io
