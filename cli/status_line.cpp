// status_line.cpp: see status_line.h.
#include "status_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace flashtile::cli {

bool StatusLine::on_terminal() {
    return ::isatty(STDERR_FILENO) != 0;
}

void StatusLine::say(const std::string& text) {
    if (!on_terminal()) return;
    fmt::print(stderr, "\r{}\x1b[K", text);
    std::fflush(stderr);
    shown_ = true;
}

void StatusLine::clear() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
    shown_ = false;
}

}  // namespace flashtile::cli
