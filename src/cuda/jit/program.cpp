// program.cpp: see program.h.
#include "cuda/jit/program.h"

#include <utility>

#include "cuda/jit/sha256.h"

namespace flashtile::gpu {

std::string target_name(int architecture) {
    // Hopper's own instructions (wgmma) exist in sm_90a only; no later GPU runs sm_90 code, so nothing is lost.
    return "sm_" + std::to_string(architecture) + (architecture == 90 ? "a" : "");
}

Program program_of(std::string text, std::vector<SourceFile> headers, int architecture, int newest) {
    Program program;
    program.main = {"flashtile_kernel.cu", std::move(text)};
    program.headers = std::move(headers);
    program.ptx = newest != 0 && architecture > newest;
    program.options = {
        "--gpu-architecture=" + (program.ptx ? "compute_" + std::to_string(newest) : target_name(architecture)),
        "-std=c++20",
        "-default-device",
    };
    return program;
}

std::string key_of(const Program& program, int compiler_version) {
    Sha256 sum;
    // Each with its length, so that no two lists run together into the same bytes.
    const auto add = [&](const std::string& text) {
        sum.add(std::to_string(text.size()) + ":");
        sum.add(text);
    };
    add(std::to_string(compiler_version));
    add(program.ptx ? "ptx" : "cubin");
    for (const std::string& option : program.options) add(option);
    add(program.main.name);
    add(program.main.text);
    for (const SourceFile& header : program.headers) {
        add(header.name);
        add(header.text);
    }
    return sum.finish();
}

}  // namespace flashtile::gpu
