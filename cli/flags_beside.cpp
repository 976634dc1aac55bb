// flags_beside.cpp: see flags_beside.h.
#include "flags_beside.h"

#include <fmt/format.h>

namespace flashtile::cli {

void refuse_flags_beside(const CLI::App& command, const std::string& flag, const std::set<std::string>& allowed,
                         const std::string& because) {
    for (const CLI::Option* option : command.get_options())
        if (option->count() != 0 && option->get_name() != flag && !allowed.contains(option->get_name()))
            throw CLI::ValidationError(
                option->get_name(), fmt::format("is given beside {}, {}; allowed is one or the other", flag, because));
}

}  // namespace flashtile::cli
