// progress.h: a status line that says what is being done and for how long. It shows the time by a thread of its own,
// which `bench` must not have beside its measurements: that uses the StatusLine itself.
#pragma once

#include <memory>
#include <string>

namespace flashtile::cli {

class Progress {
public:
    explicit Progress(const std::string& what);  // "attending to 4096 queries"
    void say(const std::string& what);           // "12 of 700 problems", from now on and at once
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();  // clears the line

private:
    class Line;
    std::unique_ptr<Line> line_;
};

}  // namespace flashtile::cli
