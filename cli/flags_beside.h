// flags_beside.h: refusing flags that have no effect beside another one. They must not be ignored without a word.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>

namespace flashtile::cli {

// Throws CLI::ValidationError if a flag of the command was given that is neither `flag` nor one of `allowed`. `because`
// goes on after the flag's name in the message: "whose problems are made".
void refuse_flags_beside(const CLI::App& command, const std::string& flag, const std::set<std::string>& allowed,
                         const std::string& because);

}  // namespace flashtile::cli
