// compile.h: from a CUDA program to a shared object for the host, by the host's C++ compiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

struct File {
    std::string name, text;
};

struct Program {
    File main;
    std::vector<File> headers;
};

// Returns whether it compiles. `options` are NVRTC's.
bool compile(const Program& program, const std::vector<std::string>& options, std::string& object, std::string& log);

// Of all that decides what compile makes of a program.
std::uint64_t fingerprint();

}  // namespace emulator
