// block_list_flags.h: the flags of `attend` that bring lists of blocks, and the tensors of their file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend_inputs.h"

namespace flashtile::cli {

// Tensors in the file, and which of the lists they are.
using BlockListInputs = std::vector<std::pair<flashtile::tensor flashtile::block_lists::*, AttendInput>>;

struct BlockListFlags {
    std::string file;  // counts and indices, and full_counts and full_indices where it has them
    std::vector<std::int64_t> block_size = {128, 128};

    void add_to(CLI::App& app);
    // Nothing without a file.
    BlockListInputs open() const;
};

}  // namespace flashtile::cli
