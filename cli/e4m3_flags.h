// e4m3_flags.h: the flags of `verify` and `info --plan` that make a problem's tensors e4m3, with scales.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace flashtile::cli {

struct E4m3Flags {
    std::string which;             // "all", "keys", or empty: none
    std::string scales = "block";  // none, tensor, head, block
    int block = 64;                // rows

    bool present() const { return !which.empty(); }
    bool keys_only() const { return which == "keys"; }
    void add_to(CLI::App& app);
};

}  // namespace flashtile::cli
