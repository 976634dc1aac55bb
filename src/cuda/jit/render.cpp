// render.cpp: see render.h.
#include "cuda/jit/render.h"

#include "cuda/jit/config_fields.h"
#include "cuda/jit/function_source.h"
#include "cuda/kernel_names.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

std::string text(int value) {
    return std::to_string(value);
}
std::string text(bool value) {
    return value ? "true" : "false";
}
std::string text(Kernel kernel) {
    return std::string("flashtile::Kernel::") + name_of(kernel);
}
std::string text(Element element) {
    return std::string("flashtile::Element::") + name_of(element);
}
std::string text(BiasElement element) {
    constexpr const char* names[] = {"none", "fp32", "same"};
    return std::string("flashtile::BiasElement::") + names[static_cast<int>(element)];
}

// A launch of such a kernel needs no word of clusters, only a whole number of them.
std::string cluster_of(const KernelConfig& config) {
    const int blocks = cluster_blocks(config);
    return blocks == 1 ? "" : "__cluster_dims__(" + std::to_string(blocks) + ", 1, 1)\n";
}

// Behind the kernel's own file, which declares them.
std::string functions_of(const KernelConfig& config) {
    return config.functions == 0 ? "" : std::string("#include \"").append(kFunctionFile).append("\"\n");
}

// The number would be another one in another process, which would not find the kernel in the cache.
KernelConfig without_number(KernelConfig config) {
    config.functions = 0;
    return config;
}

}  // namespace

std::string to_string(const KernelConfig& config) {
    std::string list;
    visit_fields(config, [&](const char* name, auto value) {
        list += std::string(list.empty() ? "" : ", ") + "." + name + " = " + text(value);
    });
    return "flashtile::KernelConfig{" + list + "}";
}

std::string kernel_file(Kernel kernel) {
    return std::string("cuda/kernels/") + name_of(kernel) + ".h";
}

std::string render(const KernelConfig& config, unsigned stress) {
    return "namespace flashtile { [[maybe_unused]] constexpr unsigned kStressSeed = " + std::to_string(stress) +
           "; }\n"
           "#include \"" +
           kernel_file(config.kernel) + "\"\n" + functions_of(config) +
           "constexpr flashtile::KernelConfig config = " + to_string(without_number(config)) +
           ";\n"
           "extern \"C\" __global__ void __launch_bounds__(config.warps * 32, config.blocks_per_sm)\n" +
           cluster_of(config) + kKernelName + "(const __grid_constant__ flashtile::" + params_of(config.kernel) +
           " params) {\n"
           "    flashtile::" +
           name_of(config.kernel) +
           "<config>(params);\n"
           "}\n";
}

}  // namespace flashtile::gpu
