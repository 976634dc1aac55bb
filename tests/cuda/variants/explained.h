// explained.h: the list of variants that may spill registers or draw a remark, with the most bytes that they may spill
// and why that is borne.
#pragma once

#include <istream>
#include <regex>
#include <string>
#include <vector>

#include "cuda/jit/compiler_report.h"

namespace flashtile::variants {

struct Explanation {
    std::regex pattern;
    int most_bytes;
    std::string line;
    bool used = false;
};

class Explained {
public:
    // Lines "REGULAR EXPRESSION <= BYTES # REASON"; throws on any other that is neither empty nor starts with '#'.
    explicit Explained(std::istream& file);

    // True if a line matches `name` and allows what `report` says was spilled.
    bool excuses(const std::string& name, const gpu::CompilerReport& report);

    // The lines that have excused nothing yet.
    std::vector<std::string> unused() const;

private:
    std::vector<Explanation> list_;
};

}  // namespace flashtile::variants
