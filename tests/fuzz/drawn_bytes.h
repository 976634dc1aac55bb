// drawn_bytes.h: a drawn file as a reader gets it, and what every reader must do with one that it refuses.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "io/array.h"
#include "require.h"

namespace flashtile::fuzz {

// A copy of just this size: the address sanitizer sees a read past its end.
inline std::vector<std::byte> exact_copy(const std::string& drawn) {
    const auto* begin = reinterpret_cast<const std::byte*>(drawn.data());
    return {begin, begin + drawn.size()};
}

// What `parse` makes of a file; nothing where it refuses it, by an error that names the file.
template <class Parse>
auto parsed(const std::vector<std::byte>& file, const std::string& file_name, Parse parse)
    -> std::optional<decltype(parse(file, file_name))> {
    try {
        return parse(file, file_name);
    } catch (const io::FileError& error) {
        require(std::string(error.what()).starts_with(file_name + ": "), "an error names the file");
        return std::nullopt;
    }
}

}  // namespace flashtile::fuzz
