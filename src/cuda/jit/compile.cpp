// compile.cpp: see compile.h.
#include "cuda/jit/compile.h"

#include "core/error.h"
#include "cuda/driver.h"
#include "cuda/jit/function_source.h"
#include "cuda/jit/kernel_sources.h"
#include "cuda/jit/render.h"
#include "cuda/jit/stress_seed.h"

namespace flashtile::gpu {

Program program_for(const KernelConfig& config, int architecture, int newest) {
    std::vector<SourceFile> headers = with_includes(kernel_file(config.kernel));
    if (config.functions != 0)
        headers.push_back({kFunctionFile, function_source(config.functions, config.near_positions)});
    return program_of(render(config, stress_seed()), std::move(headers), architecture, newest);
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
