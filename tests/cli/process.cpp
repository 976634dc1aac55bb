// process.cpp: see process.h.
#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace flashtile::tests {
namespace {

// The two ends of what connects a process with the test: a pipe, or a terminal.
struct Channel {
    int ours = -1;
    int theirs = -1;
};

[[noreturn]] void fail(int error, const char* what) {
    throw std::system_error(error, std::generic_category(), what);
}

Channel open_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(errno, "pipe2");
    return {ends[0], ends[1]};
}

Channel open_terminal() {
    Channel channel;
    channel.ours = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (channel.ours < 0 || ::grantpt(channel.ours) != 0 || ::unlockpt(channel.ours) != 0) fail(errno, "posix_openpt");
    channel.theirs = ::open(::ptsname(channel.ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (channel.theirs < 0) fail(errno, "a terminal's other side");
    return channel;
}

}  // namespace

Process::Process(const Command& command, Stderr kind) {
    const Channel out = open_pipe();
    const Channel err = kind == Stderr::terminal ? open_terminal() : open_pipe();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out.theirs, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err.theirs, STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    const int error = ::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out.theirs);
    ::close(err.theirs);
    out_reader_ = std::jthread([this, out] { collect(out.ours, ending_.out); });
    err_reader_ = std::jthread([this, err] { collect(err.ours, ending_.err); });
    if (error != 0) {
        pid_ = -1;
        fail(error, arguments[0]);
    }
}

Process::~Process() {
    if (pid_ < 0) return;
    send(SIGKILL);
    wait();
}

void Process::collect(int descriptor, std::string& text) {
    std::array<char, 4096> buffer{};
    // A terminal whose other side is closed answers with an error instead of an end.
    for (ssize_t size = 0; (size = ::read(descriptor, buffer.data(), buffer.size())) > 0;) {
        const std::scoped_lock lock(mutex_);
        text.append(buffer.data(), static_cast<std::size_t>(size));
    }
    ::close(descriptor);
}

std::string Process::err() {
    const std::scoped_lock lock(mutex_);
    return ending_.err;
}

void Process::send(int signal) const {
    ::kill(pid_, signal);
}

Ending Process::wait() {
    int status = 0;
    if (::waitpid(std::exchange(pid_, -1), &status, 0) < 0) fail(errno, "waitpid");
    out_reader_.join();
    err_reader_.join();
    if (WIFEXITED(status)) ending_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ending_.signal = WTERMSIG(status);
    return ending_;
}

Ending run(const Command& command) {
    return Process(command).wait();
}

Command flashtile_command(const Command& arguments) {
    Command command = {FLASHTILE_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

Ending flashtile(const Command& arguments) {
    return run(flashtile_command(arguments));
}

}  // namespace flashtile::tests
