// scale_flags.h: the flags of `attend` that say what e4m3 elements are multiplied by.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "attend_inputs.h"

namespace flashtile::cli {

struct ScaleInput {
    flashtile::tensor options::*meaning;
    AttendInput file;
    int block;  // rows that share a scale; 0: all of a head

    // As the library wants it, (batch, heads) or (batch, heads, blocks), of an array that lacks the dimensions that q,
    // of so many, lacks.
    flashtile::tensor view(std::size_t dimensions_of_q, bool packed) const;
};

struct ScaleFlags {
    std::string q, k, v;
    int block = 0;

    void add_to(CLI::App& command);
    // Of the flags that were given.
    std::vector<ScaleInput> open() const;
};

}  // namespace flashtile::cli
