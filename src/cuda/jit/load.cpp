// load.cpp: see load.h.
#include "cuda/jit/load.h"

#include <bit>

#include "core/error.h"
#include "cuda/jit/render.h"

namespace flashtile::gpu {
namespace {

// A capture in the global mode forbids what might synchronise, in its thread or in all. Loading a module touches no
// stream, so it may go on.
class RelaxedCapture {
public:
    RelaxedCapture() { driver().check(driver().cuThreadExchangeStreamCaptureMode(&mode_), kWhat); }
    ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    static constexpr const char* kWhat = "cuThreadExchangeStreamCaptureMode";
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

LoadedKernel load(const std::string& image, const KernelConfig& config, const Device& device, int shared_memory) {
    const RelaxedCapture relaxed;
    const auto where = [&] { return " on " + device.facts().name + ": " + to_string(config); };

    std::string log(8192, '\0');
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log.data(), std::bit_cast<void*>(log.size())};
    CUmodule module = nullptr;
    if (const CUresult result = driver().cuModuleLoadDataEx(&module, image.c_str(), 2, options, values);
        result != CUDA_SUCCESS) {
        const std::string said = log.c_str();
        driver().fail(result, "loading a kernel" + where() + (said.empty() ? "" : "\n" + said) + "\nThe driver " +
                                  driver().path + " serves CUDA " + version_text(driver().version) +
                                  "; code of a later major version's NVRTC does not load");
    }
    LoadedKernel kernel;
    if (const CUresult result = driver().cuModuleGetFunction(&kernel.function, module, kKernelName);
        result != CUDA_SUCCESS)
        driver().fail(result, "finding the kernel in its module" + where());
    if (const CUresult result = driver().cuFuncSetAttribute(
            kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_memory);
        result != CUDA_SUCCESS)
        driver().fail(result, "allowing " + std::to_string(shared_memory) + " bytes of shared memory" + where());
    return kernel;
}

}  // namespace flashtile::gpu
