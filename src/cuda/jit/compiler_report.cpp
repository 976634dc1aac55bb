// compiler_report.cpp: see compiler_report.h.
#include "cuda/jit/compiler_report.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace flashtile::gpu {
namespace {

bool digit(char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// Sets `number` to what stands before `words` in the line, if these are in it.
void read_before(std::string_view words, std::string_view line, int& number) {
    const std::size_t end = line.find(words);
    if (end == std::string_view::npos) return;
    std::size_t begin = end;
    while (begin > 0 && digit(line[begin - 1])) --begin;
    if (begin != end) number = std::stoi(std::string(line.substr(begin, end - begin)));
}

// "C7512" and the like: wgmma that is not as asynchronous as it was written.
bool has_remark(std::string_view line) {
    const std::size_t at = line.find("C75");
    return at != std::string_view::npos && std::ranges::all_of(line.substr(at + 3, 2), digit);
}

}  // namespace

CompilerReport read_report(const std::string& log) {
    CompilerReport report;
    int stored = 0, loaded = 0;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
        read_before(" registers", line, report.registers);
        read_before(" bytes stack frame", line, report.stack_bytes);
        read_before(" bytes spill stores", line, stored);
        read_before(" bytes spill loads", line, loaded);
        if (line.find("warning") != std::string::npos || has_remark(line)) report.warnings.push_back(line);
    }
    report.spill_bytes = stored + loaded;
    return report;
}

}  // namespace flashtile::gpu
