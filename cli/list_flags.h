// list_flags.h: the flags of `attend` that take whole numbers: where in a cache each sequence's keys lie, and how many
// of its keys and queries are used.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "whole_numbers.h"

namespace flashtile::cli {

struct List {
    flashtile::tensor options::*meaning;
    WholeNumbers numbers;
};

// nullptr where it was not given.
const List* find(const std::vector<List>& lists, flashtile::tensor options::*meaning);

class ListFlags {
public:
    ListFlags();
    // Some are for a cache only, which the flag `cache` gives.
    void add_to(CLI::App& command, CLI::Option* cache);

    // Of the flags that were given. Where a cache's rows are not named, those of `sequences` sequences are its first;
    // packed queries ask for no names.
    std::vector<List> open() const;
    std::vector<List> open_for_cache(std::int64_t sequences) const;

private:
    struct Flag {
        std::string name;
        flashtile::tensor options::*meaning;
        const char* help;
        const char* type;
        bool of_a_cache = false;
        std::string alias = "";
        dtype numbers = dtype::int32;
        std::string given = "";
    };
    std::vector<Flag> flags_;
};

}  // namespace flashtile::cli
