// compiler_report.cpp: see compiler_report.h.
#include "cuda/variants/compiler_report.h"

#include <regex>
#include <sstream>

namespace flashtile::variants {

CompilerReport read_report(const std::string& log) {
    static const std::regex registers("Used ([0-9]+) registers");
    static const std::regex stack(
        "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
    static const std::regex remark("warning|\\bC75[0-9]{2}\\b");
    CompilerReport report;
    std::istringstream lines(log);
    std::smatch found;
    for (std::string line; std::getline(lines, line);) {
        if (std::regex_search(line, found, registers)) report.registers = std::stoi(found[1]);
        if (std::regex_search(line, found, stack)) {
            report.stack_bytes = std::stoi(found[1]);
            report.spill_bytes = std::stoi(found[2]) + std::stoi(found[3]);
        }
        if (std::regex_search(line, remark)) report.warnings.push_back(line);
    }
    return report;
}

}  // namespace flashtile::variants
