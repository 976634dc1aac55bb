// process.h: a program as its users run it: a process of its own, whose output, signals and end a test sees. Limits and
// environment variables are set as in a shell, by prlimit(1) and env(1) before the program's name.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace flashtile::tests {

using Command = std::vector<std::string>;

struct Ending {
    int exit_code = -1;  // -1 where a signal ended it
    int signal = 0;
    std::string out;
    std::string err;
};

class Process {
public:
    enum class Stderr { pipe, terminal };

    // Starts it; stdin is empty, stdout a pipe.
    explicit Process(const Command& command, Stderr kind = Stderr::pipe);
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process();  // kills what was not waited for

    std::string err();  // what it has said so far
    void send(int signal) const;
    Ending wait();

private:
    // Reads until the other side is closed, so that the process never waits for a reader.
    void collect(int descriptor, std::string& text);

    std::mutex mutex_;
    Ending ending_;
    pid_t pid_ = -1;
    std::jthread out_reader_;
    std::jthread err_reader_;
};

Ending run(const Command& command);
Ending flashtile(const Command& arguments);           // `flashtile ARGUMENTS`, run to its end
Command flashtile_command(const Command& arguments);  // the same as a command

}  // namespace flashtile::tests
