// refuse.h: how the library says that an argument is wrong: its name, its value and what is allowed. The other files of
// this folder say what is checked.
#pragma once

#include <sstream>
#include <string>

#include "core/error.h"

namespace flashtile::api {

// Its arguments as they print, one after the other.
template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <class Value>
[[noreturn]] void refuse(const std::string& argument, const Value& value, const std::string& allowed) {
    throw Error(FLASHTILE_INVALID_ARGUMENT, text(argument, " is ", value, ", allowed is ", allowed));
}

}  // namespace flashtile::api
