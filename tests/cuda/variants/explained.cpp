// explained.cpp: see explained.h.
#include "cuda/variants/explained.h"

#include <stdexcept>

namespace flashtile::variants {

Explained::Explained(std::istream& file) {
    static const std::regex form("(.+) <= ([0-9]{1,6}) # .+");
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::smatch parts;
        if (!std::regex_match(line, parts, form))
            throw std::runtime_error("not of the form 'REGULAR EXPRESSION <= BYTES # REASON': " + line);
        list_.push_back({std::regex(parts[1].str()), std::stoi(parts[2]), line});
    }
}

bool Explained::excuses(const std::string& name, const gpu::CompilerReport& report) {
    bool found = false;
    for (Explanation& entry : list_)
        if (report.spill_bytes <= entry.most_bytes && std::regex_search(name, entry.pattern)) found = entry.used = true;
    return found;
}

std::vector<std::string> Explained::unused() const {
    std::vector<std::string> lines;
    for (const Explanation& entry : list_)
        if (!entry.used) lines.push_back(entry.line);
    return lines;
}

}  // namespace flashtile::variants
