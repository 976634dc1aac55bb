// nvrtc.h: NVIDIA's run-time compiler, opened with dlopen when the first kernel must be compiled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/find_nvrtc.h"

namespace flashtile::gpu {

// One file of the program: the name by which it is included, and its text.
struct SourceFile {
    std::string name;
    std::string text;

    bool operator==(const SourceFile&) const = default;
};

struct Program {
    SourceFile main;
    std::vector<SourceFile> headers;
    std::vector<std::string> options;
    bool ptx = false;  // what to ask for: PTX, else a cubin
};

class Nvrtc {
public:
    const std::string& path() const { return path_; }
    int version() const { return version_; }                                  // 1000 * major + 10 * minor
    const std::vector<int>& architectures() const { return architectures_; }  // 10 * major + minor, ascending

    struct Result {
        bool ok = false;
        std::string image;
        std::string log;  // warnings, and what ptxas was asked to say; where not ok, the reason
    };
    Result compile(const Program& program) const;

private:
    friend struct NvrtcOpening;
    struct Functions;
    const Functions* functions_ = nullptr;
    std::string path_;
    int version_ = 0;
    std::vector<int> architectures_;
};

// Opens it once; throws UNSUPPORTED where there is none, naming what to install and where it looked.
const Nvrtc& nvrtc();

// What nvrtc() would throw, or "" where it is there.
std::string why_no_nvrtc();

// Where it was looked for.
const std::vector<std::string>& nvrtc_looked();

}  // namespace flashtile::gpu
