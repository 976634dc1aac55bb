// compile.cpp: see compile.h.
#include "cuda/jit/compile.h"

#include "core/error.h"
#include "cuda/driver.h"
#include "cuda/jit/kernel_sources.h"
#include "cuda/jit/render.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/stress_seed.h"

namespace flashtile::gpu {

std::string target_name(int architecture) {
    // Hopper's own instructions (wgmma) exist in sm_90a only; no later GPU runs sm_90 code, so nothing is lost.
    return "sm_" + std::to_string(architecture) + (architecture == 90 ? "a" : "");
}

Program program_for(const KernelConfig& config, int architecture, int newest) {
    Program program;
    program.main = {"flashtile_kernel.cu", render(config, stress_seed())};
    program.headers = with_includes(kernel_file(config.kernel));
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

std::string ptx_note(int architecture) {
    if (!why_no_nvrtc().empty()) return "";
    const int nearest = nvrtc().nearest(architecture);
    if (nearest == 0 || nearest == architecture) return "";
    return "NVRTC " + version_text(nvrtc().version()) + " does not know " + target_name(architecture) +
           ": kernels are compiled to PTX for compute_" + std::to_string(nearest) +
           ", which the driver finishes; a newer NVRTC makes better code";
}

Compiled compile(const KernelConfig& config, int architecture, bool report) {
    const Nvrtc& compiler = nvrtc();
    Program program = program_for(config, architecture, compiler.nearest(architecture));
    if (report) program.options.emplace_back("--ptxas-options=-v");
    Nvrtc::Result result = compiler.compile(program);
    if (!result.ok) {
        std::string options;
        for (const std::string& option : program.options) options += " " + option;
        throw Error(FLASHTILE_DEVICE_ERROR, "NVRTC " + version_text(compiler.version()) + " (" + compiler.path() +
                                                ") does not compile " + to_string(config) + " with" + options + ":\n" +
                                                result.log);
    }
    return {std::move(result.image), std::move(result.log)};
}

}  // namespace flashtile::gpu
