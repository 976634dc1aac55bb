// render.cpp: see render.h.
#include "cuda/jit/render.h"

#include "cuda/jit/config_fields.h"

namespace flashtile::gpu {
namespace {

// The function, and the file in src/cuda/kernels, of each kernel.
struct Place {
    const char* enumerator;
    const char* file;
    const char* function;
};

Place place_of(Kernel kernel) {
    switch (kernel) {
        case Kernel::forward:
            return {"forward", "forward_sm80.h", "forward_sm80"};
        case Kernel::forward_sm90:
            return {"forward_sm90", "forward_sm90.h", "forward_sm90"};
        case Kernel::backward_prepare:
            return {"backward_prepare", "backward_prepare.h", "backward_prepare"};
        case Kernel::backward:
            return {"backward", "backward_sm80.h", "backward_sm80"};
        case Kernel::backward_sm90:
            return {"backward_sm90", "backward_sm90.h", "backward_sm90"};
        case Kernel::backward_finish:
            return {"backward_finish", "backward_finish.h", "backward_finish"};
        case Kernel::backward_bias:
            return {"backward_bias", "backward_bias_sm80.h", "backward_bias_sm80"};
        case Kernel::dropout_mask:
            return {"dropout_mask", "dropout_mask.h", "dropout_mask"};
    }
    return {};
}

std::string text(int value) {
    return std::to_string(value);
}
std::string text(bool value) {
    return value ? "true" : "false";
}
std::string text(Kernel kernel) {
    return std::string("flashtile::Kernel::") + place_of(kernel).enumerator;
}
std::string text(Element element) {
    constexpr const char* names[] = {"fp32", "fp16", "bf16"};
    return std::string("flashtile::Element::") + names[static_cast<int>(element)];
}
std::string text(BiasElement element) {
    constexpr const char* names[] = {"none", "fp32", "same"};
    return std::string("flashtile::BiasElement::") + names[static_cast<int>(element)];
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
    return std::string("cuda/kernels/") + place_of(kernel).file;
}

std::string render(const KernelConfig& config, unsigned stress) {
    return "namespace flashtile { [[maybe_unused]] constexpr unsigned kStressSeed = " + std::to_string(stress) +
           "; }\n"
           "#include \"" +
           kernel_file(config.kernel) +
           "\"\n"
           "constexpr flashtile::KernelConfig config = " +
           to_string(config) +
           ";\n"
           "extern \"C\" __global__ void __launch_bounds__(config.warps * 32, config.blocks_per_sm)\n" +
           kKernelName +
           "(const __grid_constant__ flashtile::KernelParams params) {\n"
           "    flashtile::" +
           place_of(config.kernel).function +
           "<config>(params);\n"
           "}\n";
}

}  // namespace flashtile::gpu
