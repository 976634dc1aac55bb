// rewrite.cpp: see rewrite.h.
#include "emulator/compiler/rewrite.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "cuda/jit/kernel_sources.h"

namespace emulator {
namespace {

// The emulator's file in place of a program's, or null.
const flashtile::gpu::EmbeddedSource* replacement(const std::string& name) {
    const std::string_view start = "cuda/kernels/ptx/", wgmma = "wgmma_";
    if (!name.starts_with(start)) return nullptr;
    std::string own = "ptx/" + name.substr(start.size());
    if (name.substr(start.size()).starts_with(wgmma)) own = "ptx/wgmma.h";
    const auto all = flashtile::gpu::embedded_sources();
    const auto found = std::ranges::find(all, own, &flashtile::gpu::EmbeddedSource::name);
    return found == all.end() ? nullptr : &*found;
}

// `extern __shared__ __align__(16) T name[];` becomes a macro, since the place is another one in every thread block.
std::string with_shared_memory(const std::string& text) {
    static const std::regex declaration(
        R"(extern\s+__shared__\s+(?:__align__\((\d+)\)\s+)?([\w:]+(?:\s[\w:]+)*)\s+(\w+)\[\];)");
    return std::regex_replace(text, declaration, "#define $3 (reinterpret_cast<$2*>(emulator_thread->shared))");
}

// The kernel's name stands before the parameters, behind __global__, its type and its launch bounds.
std::string kernel_name(const std::string& text) {
    static const std::regex name(R"((\w+)\s*\(\s*const\s+__grid_constant__)");
    std::smatch found;
    if (!std::regex_search(text, found, name)) throw std::runtime_error("the program has no kernel of one parameter");
    return found[1];
}

// "1" where it says nothing of clusters.
std::string cluster_blocks(const std::string& text) {
    static const std::regex dims(R"(__cluster_dims__\((\d+), 1, 1\))");
    std::smatch found;
    return std::regex_search(text, found, dims) ? found[1].str() : "1";
}

}  // namespace

std::vector<File> rewritten(const Program& program) {
    std::vector<File> files = own_files();
    for (const File& header : program.headers) {
        const auto* own = replacement(header.name);
        files.push_back({header.name, with_shared_memory(own != nullptr ? std::string(own->text) : header.text)});
    }
    const std::string name = kernel_name(program.main.text);
    files.push_back({program.main.name,
                     program.main.text + "extern \"C\" __attribute__((visibility(\"default\"))) void emulator_call_" +
                         name + "(void* const* parameters) {\n    emulator::call(" + name +
                         ", parameters);\n}\n"
                         "extern \"C\" __attribute__((visibility(\"default\"))) const unsigned "
                         "emulator_parameter_bytes_" +
                         name + " = emulator::parameter_bytes(" + name +
                         ");\n"
                         "extern \"C\" __attribute__((visibility(\"default\"))) const unsigned "
                         "emulator_cluster_blocks_" +
                         name + " = " + cluster_blocks(program.main.text) + ";\n"});
    return files;
}

std::vector<File> own_files() {
    std::vector<File> files;
    for (const auto& source : flashtile::gpu::embedded_sources())
        files.push_back({"emulator/" + std::string(source.name), std::string(source.text)});
    return files;
}

std::string architecture_macro(const std::string& option) {
    static const std::regex architecture("--gpu-architecture=(?:sm|compute)_(\\d+)a?");
    std::smatch found;
    return std::regex_match(option, found, architecture) ? "__CUDA_ARCH__=" + found[1].str() + "0" : "";
}

}  // namespace emulator
