// function_flags.h: the flags of the user's own score and mask functions, and of the tensors that these name.
#pragma once

#include <CLI/CLI.hpp>
#include <flashtile/flashtile.hpp>
#include <string>
#include <utility>
#include <vector>

namespace flashtile::cli {

struct FunctionFlags {
    std::string score, mask;
    std::vector<std::pair<std::string, std::string>> tensors;  // names, and what was said of them

    void add_texts_to(CLI::App& app);
    // `what` is how a tensor is told behind NAME=.
    void add_tensors_to(CLI::App& app, const char* what, const char* help);
    // Names the texts in `options`, which must not outlive this.
    void set(flashtile::options& options) const;
};

}  // namespace flashtile::cli
