// status_line.h: a line on the terminal that the next one replaces. Where stderr is no terminal, nothing is printed.
#pragma once

#include <string>

namespace flashtile::cli {

class StatusLine {
public:
    static bool on_terminal();

    StatusLine() = default;
    StatusLine(const StatusLine&) = delete;
    StatusLine& operator=(const StatusLine&) = delete;
    ~StatusLine() { clear(); }

    void say(const std::string& text);
    void clear();

private:
    bool shown_ = false;
};

}  // namespace flashtile::cli
