// block_list_flags.cpp: see block_list_flags.h.
#include "block_list_flags.h"

#include <fmt/format.h>

#include "io/safetensors.h"

namespace flashtile::cli {

void BlockListFlags::add_to(CLI::App& app) {
    auto* const lists = app.add_option("--block-lists", file,
                                       "Blocks of the scores that are seen: counts and indices, and full_counts and "
                                       "full_indices (docs/functions.md)")
                            ->type_name("FILE.safetensors");
    app.add_option("--block-size", block_size, "Queries and keys of a block, multiples of 64")
        ->delimiter(',')
        ->expected(2)
        ->needs(lists)
        ->type_name("Q,K");
}

BlockListInputs BlockListFlags::open() const {
    BlockListInputs inputs;
    if (file.empty()) return inputs;
    const auto add = [&](const char* name, flashtile::tensor flashtile::block_lists::*meaning) {
        inputs.emplace_back(meaning, AttendInput("--block-lists", fmt::format("{}:{}", file, name)));
    };
    add("counts", &block_lists::counts);
    add("indices", &block_lists::indices);
    const io::SafetensorsFile others(file);
    if (others.contains("full_counts")) add("full_counts", &block_lists::full_counts);
    if (others.contains("full_indices")) add("full_indices", &block_lists::full_indices);
    return inputs;
}

}  // namespace flashtile::cli
