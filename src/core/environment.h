// environment.h: the environment's variables. A program that runs with more rights than its caller (setuid) gets none
// of them, since they decide which libraries and files are opened.
#pragma once

#include <cstdlib>
#include <string>

namespace flashtile {

// "" where the variable is not set.
inline std::string environment(const char* name) {
    const char* value = ::secure_getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace flashtile
