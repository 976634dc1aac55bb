// flags_beside.cpp: see flags_beside.h.
#include "flags_beside.h"

namespace flashtile::cli {

void refuse_flags_beside(const CLI::App& command, const std::string& flag, const std::set<std::string>& allowed,
                         const std::string& because) {
    for (const CLI::Option* option : command.get_options())
        if (option->count() != 0 && option->get_name() != flag && !allowed.contains(option->get_name()))
            throw CLI::ValidationError(option->get_name(),
                                       "is given beside " + flag + ", " + because + "; allowed is one or the other");
}

}  // namespace flashtile::cli
