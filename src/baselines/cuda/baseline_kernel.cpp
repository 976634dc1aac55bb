// baseline_kernel.cpp: see baseline_kernel.h.
#include "baselines/cuda/baseline_kernel.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/per_process.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/load.h"
#include "cuda/jit/program.h"
#include "cuda/jit/render.h"
#include "cuda/kernel_names.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu_baselines {
namespace {

struct Cache {
    std::mutex mutex;                           // of `memory`
    std::map<std::string, std::string> memory;  // where the disk does not take them
    gpu::DiskCache disk{gpu::cache_folder()};
};
constinit PerProcess<Cache> cache;

gpu::Program program_for(const KernelText& text, int architecture) {
    return gpu::program_of(text.whole(), gpu::with_includes(text.file, gpu::baseline_sources()), architecture,
                           gpu::nvrtc().nearest(architecture));
}

std::string image_for(const KernelText& text, int architecture) {
    const std::string key = gpu::key_of(program_for(text, architecture), gpu::nvrtc().version());
    {
        const std::lock_guard lock(cache.get().mutex);
        if (const auto found = cache.get().memory.find(key); found != cache.get().memory.end()) return found->second;
    }
    if (std::optional<std::string> image = cache.get().disk.load(key)) return *std::move(image);
    std::string image = compile(text, architecture).image;
    if (!cache.get().disk.store(key, image)) {
        const std::lock_guard lock(cache.get().mutex);
        cache.get().memory[key] = image;
    }
    return image;
}

}  // namespace

std::string KernelText::whole() const {
    return "namespace flashtile { [[maybe_unused]] constexpr unsigned kStressSeed = 0; }\n#include \"" + file +
           "\"\nconstexpr flashtile::KernelConfig config = " + gpu::to_string(config) +
           ";\nextern \"C\" __global__ void __launch_bounds__(config.warps * 32, config.blocks_per_sm)\n" +
           gpu::kKernelName + "(const __grid_constant__ flashtile::" + params +
           " params) {\n    flashtile::" + function + "(params);\n}\n";
}

KernelText text_of(const KernelConfig& config) {
    return {.config = config,
            .file = gpu::kernel_file(config.kernel),
            .function = std::string(gpu::name_of(config.kernel)) + "<config>",
            .params = gpu::params_of(config.kernel),
            .shared_memory = shared_bytes(config)};
}

gpu::Nvrtc::Result compile(const KernelText& text, int architecture, bool report) {
    gpu::Program program = program_for(text, architecture);
    if (report) program.options.emplace_back("--ptxas-options=-v");
    gpu::Nvrtc::Result result = gpu::nvrtc().compile(program);
    if (!result.ok)
        throw Error(FLASHTILE_DEVICE_ERROR,
                    "NVRTC (" + gpu::nvrtc().path() + ") does not compile " + text.whole() + result.log);
    return result;
}

void prepare(const KernelText& text, int ordinal) {
    static_cast<void>(image_for(text, gpu::device(ordinal).facts().architecture));
}

BaselineKernel::BaselineKernel(KernelText text, int ordinal) : text_(std::move(text)), ordinal_(ordinal) {
    const gpu::Device& device = gpu::device(ordinal);
    if (text_.shared_memory > device.facts().shared_memory_per_block)
        throw Error(FLASHTILE_UNSUPPORTED, text_.function + " takes " + std::to_string(text_.shared_memory) +
                                               " bytes of shared memory, " + device.facts().name + " has " +
                                               std::to_string(device.facts().shared_memory_per_block));
    const std::string image = image_for(text_, device.facts().architecture);
    const gpu::ContextScope current(device);
    loaded_ = gpu::load(image, text_.config, device, text_.shared_memory);
}

void BaselineKernel::launch(std::int64_t blocks, const void* params, const gpu_resources::Stream& stream) const {
    if (blocks == 0) return;
    const gpu::ContextScope current(gpu::device(ordinal_));
    void* arguments[] = {const_cast<void*>(params)};
    const auto result = gpu::driver().cuLaunchKernel(
        loaded_.function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(text_.config.warps * 32), 1, 1,
        static_cast<unsigned>(text_.shared_memory), stream.handle(), arguments, nullptr);
    gpu::driver().check(result, "launching " + text_.function);
}

}  // namespace flashtile::gpu_baselines
