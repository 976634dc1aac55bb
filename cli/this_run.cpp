// this_run.cpp: see this_run.h.
#include "this_run.h"

#include <ctime>
#include <fstream>
#include <iterator>

namespace flashtile::cli {

std::string command_line() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::string line{std::istreambuf_iterator<char>(file), {}};
    while (!line.empty() && line.back() == '\0') line.pop_back();
    for (char& c : line)
        if (c == '\0') c = ' ';
    return line;
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace flashtile::cli
