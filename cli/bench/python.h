// python.h: finding the Python interpreter and this project's Python tools, and running them as child processes.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace flashtile::cli::bench {

// FLASHTILE_PYTHON, or .venv/bin/python here or beside the tools, or python3.
std::string python_interpreter();

// The path of a file of tools/: below FLASHTILE_TOOLS, beside the build folder, installed, or in ./tools. Throws
// std::runtime_error where there is none.
std::string tool_path(const std::string& name);

// Runs a command to its end; its exit code, or -1 where it did not start or was killed.
int exit_code_of(const std::vector<std::string>& command);

// Whether it exits with 0, with its output discarded where `quiet`.
bool succeeds(const std::vector<std::string>& command, bool quiet);

// A child process that takes and gives lines of text.
class LineProcess {
public:
    explicit LineProcess(const std::vector<std::string>& command);
    ~LineProcess();
    LineProcess(const LineProcess&) = delete;
    LineProcess& operator=(const LineProcess&) = delete;

    // Both throw std::runtime_error when the process has gone.
    void write_line(const std::string& line);
    std::string read_line();

private:
    pid_t child_ = -1;
    int to_child_ = -1;
    int from_child_ = -1;
    std::string unread_;
};

}  // namespace flashtile::cli::bench
