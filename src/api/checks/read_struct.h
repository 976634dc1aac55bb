// read_struct.h: a caller's struct of any version, completed to this library's version.
#pragma once

#include <cstddef>
#include <cstring>

#include "api/checks/refuse.h"

namespace flashtile::api {

// An older caller's struct is shorter, and what it lacks keeps its default. No version of a struct ends between two
// multiples of its alignment, and a size that does could cut a pointer in two.
template <class T>
T read_struct(const T& given, const T& defaults, const char* name) {
    if (given.size < sizeof(std::size_t) || given.size > sizeof(T) || given.size % alignof(T) != 0)
        refuse(text(name, ".size"), given.size,
               text("a multiple of ", alignof(T), " from ", sizeof(std::size_t), " to ", sizeof(T),
                    " (use the _INIT macro)"));
    T copy = defaults;
    std::memcpy(static_cast<void*>(&copy), &given, given.size);
    return copy;
}

template <class T>
T read_struct(const T* given, const T& defaults, const char* name) {
    if (given == nullptr) refuse(name, "NULL", "a pointer to the struct");
    return read_struct(*given, defaults, name);
}

}  // namespace flashtile::api
