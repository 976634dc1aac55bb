// baseline_kernel.h: a kernel of src/baselines/cuda/kernels, or one of the library's own, from text to launch. NVRTC
// compiles it at run time as it does the library's, and the same folder on disk keeps it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cuda/jit/kernel_sources.h"
#include "cuda/jit/kernels.h"
#include "gpu_resources/gpu_resources.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {

// The library's kernel sources, and the baselines'.
std::span<const EmbeddedSource> baseline_sources();

}  // namespace flashtile::gpu

namespace flashtile::gpu_baselines {

struct KernelText {
    KernelConfig config;
    std::string file;  // that holds the kernel, as it is included
    // What is called, as C++: a function template whose first argument is `config`, and the struct that it takes.
    std::string function, params;
    int shared_memory = 0;  // dynamic, bytes

    std::string whole() const;  // the translation unit
};

// A kernel of the library's own.
KernelText text_of(const KernelConfig& config);

// Throws DEVICE_ERROR with the whole log. `report` has ptxas say in the log what the kernel uses.
gpu::Nvrtc::Result compile(const KernelText& text, int architecture, bool report = false);

// Compiles it for a GPU, so that making a BaselineKernel of it takes no time. Any threads may do so at a time.
void prepare(const KernelText& text, int ordinal);

class BaselineKernel {
public:
    // Compiles and loads it. Throws what the driver or NVRTC says.
    BaselineKernel(KernelText text, int ordinal);

    const KernelConfig& config() const { return text_.config; }

    // Asynchronous.
    void launch(std::int64_t blocks, const void* params, const gpu_resources::Stream& stream) const;

private:
    KernelText text_;
    int ordinal_;
    gpu::LoadedKernel loaded_;
};

}  // namespace flashtile::gpu_baselines
