// python.cpp: see python.h.
#include "bench/python.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

extern char** environ;

namespace flashtile::cli::bench {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> tool_folders() {
    std::vector<fs::path> folders;
    if (const char* folder = std::getenv("FLASHTILE_TOOLS")) folders.emplace_back(folder);
    std::error_code ignored;
    const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    folders.push_back(here / "../tools");
    folders.push_back(here / "../share/flashtile/tools");
    folders.emplace_back("tools");
    return folders;
}

// posix_spawn with stdin and stdout replaced where the descriptors are not negative.
pid_t spawn(const std::vector<std::string>& command, int in, int out, int error) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (in >= 0) posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (error >= 0) posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
    pid_t child = -1;
    const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : child;
}

// The exit code, or -1.
int wait_for(pid_t child) {
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

std::string python_interpreter() {
    if (const char* python = std::getenv("FLASHTILE_PYTHON")) return python;
    std::vector<fs::path> places{".venv/bin/python"};
    for (const auto& folder : tool_folders()) places.push_back(folder / "../.venv/bin/python");
    std::error_code ignored;
    for (const auto& place : places)
        if (fs::exists(place, ignored)) return place.string();
    return "python3";
}

std::string tool_path(const std::string& name) {
    std::error_code ignored;
    std::string looked;
    for (const auto& folder : tool_folders()) {
        if (fs::exists(folder / name, ignored)) return (folder / name).string();
        looked += (looked.empty() ? "" : ", ") + folder.string();
    }
    throw std::runtime_error(
        fmt::format("{} was not found in {}; set FLASHTILE_TOOLS to the folder that holds it", name, looked));
}

int exit_code_of(const std::vector<std::string>& command) {
    return wait_for(spawn(command, -1, -1, -1));
}

bool succeeds(const std::vector<std::string>& command, bool quiet) {
    const int nowhere = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    const pid_t child = spawn(command, -1, nowhere, nowhere);
    if (nowhere >= 0) close(nowhere);
    return wait_for(child) == 0;
}

// Sockets, since writing to one whose other end is gone can be had as an error instead of a signal.
LineProcess::LineProcess(const std::vector<std::string>& command) {
    int in[2] = {-1, -1};
    int out[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) != 0)
        throw std::system_error(errno, std::generic_category(), "socketpair");
    child_ = spawn(command, in[1], out[1], -1);
    close(in[1]);
    close(out[1]);
    to_child_ = in[0];
    from_child_ = out[0];
    if (child_ < 0) {
        close(to_child_);
        close(from_child_);
        throw std::runtime_error(fmt::format("{} cannot be started", command.front()));
    }
}

LineProcess::~LineProcess() {
    close(to_child_);  // the end of its input tells the child to end
    close(from_child_);
    waitpid(child_, nullptr, 0);
}

void LineProcess::write_line(const std::string& line) {
    const std::string text = line + '\n';
    for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t n = send(to_child_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) throw std::runtime_error("the child process has gone");
        sent += static_cast<std::size_t>(n);
    }
}

std::string LineProcess::read_line() {
    for (;;) {
        if (const auto end = unread_.find('\n'); end != std::string::npos) {
            std::string line = unread_.substr(0, end);
            unread_.erase(0, end + 1);
            return line;
        }
        char buffer[4096];
        const ssize_t n = recv(from_child_, buffer, sizeof buffer, 0);
        if (n <= 0) throw std::runtime_error("the child process has gone");
        unread_.append(buffer, static_cast<std::size_t>(n));
    }
}

}  // namespace flashtile::cli::bench
