// fake_driver.cpp: a driver for tests on machines without a GPU. It counts, refuses images that are not whole, and
// runs nothing; its memory is the host's. Between two events is a millisecond, half of one where the graph that was
// launched last is the FAKE_DRIVER_FAST_GRAPHth that was made. FAKE_DRIVER_DEVICES (2), FAKE_DRIVER_ARCHITECTURE (80)
// and FAKE_DRIVER_VERSION (13000) shape it; FAKE_DRIVER_INIT is what cuInit returns. With FAKE_DRIVER_CAPTURING it
// behaves as while a stream is captured: a module is loaded in the relaxed mode only.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cuda/driver_types.h"
#include "fake_image.h"

#define FAKE extern "C" __attribute__((visibility("default")))

using namespace flashtile::gpu;

namespace {

int setting(const char* name, int standard) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::atoi(value) : standard;
}

int devices() {
    return setting("FAKE_DRIVER_DEVICES", 2);
}

std::atomic<int> loads{0}, contexts{0}, launches{0}, shared_memory{0};
std::atomic<std::uintptr_t> graphs{0}, launched_graph{0};
thread_local CUcontext current = nullptr, below = nullptr;  // one level of the stack is enough here
thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

// For the tests.
FAKE int fake_loads() {
    return loads;
}
FAKE int fake_contexts() {
    return contexts;
}
FAKE int fake_launches() {
    return launches;
}
FAKE int fake_shared_memory() {
    return shared_memory;
}
FAKE int fake_capture_mode() {
    return mode;
}

FAKE CUresult cuInit(unsigned) {
    return static_cast<CUresult>(setting("FAKE_DRIVER_INIT", 0));
}
FAKE CUresult cuDriverGetVersion(int* version) {
    *version = setting("FAKE_DRIVER_VERSION", 13000);
    return CUDA_SUCCESS;
}
FAKE CUresult cuGetErrorName(CUresult result, const char** name) {
    *name = result == CUDA_ERROR_INVALID_IMAGE ? "FAKE_INVALID_IMAGE" : "FAKE_ERROR";
    return CUDA_SUCCESS;
}
FAKE CUresult cuGetErrorString(CUresult, const char** text) {
    *text = "the fake driver's reason";
    return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGetCount(int* count) {
    *count = devices();
    return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = 100 + ordinal;  // a handle need not be the ordinal
    return ordinal < devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
FAKE CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
    std::strncpy(name, ("Fake " + std::to_string(device - 100)).c_str(), static_cast<std::size_t>(size));
    return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    const int architecture = setting("FAKE_DRIVER_ARCHITECTURE", 80);
    // In bytes of a multiprocessor; 1024 of them are the driver's for each thread block.
    const bool small = architecture == 86 || architecture == 89 || architecture == 120;
    const int multiprocessor_memory = small ? 102400 : architecture < 90 ? 167936 : 233472;
    switch (
        which) {  // by their numbers in the CUDA documentation; an A100's, but for what follows from the architecture
        case 16:  // MULTIPROCESSOR_COUNT
            *value = 108;
            return CUDA_SUCCESS;
        case 38:  // L2_CACHE_SIZE
            *value = 41943040;
            return CUDA_SUCCESS;
        case 75:  // COMPUTE_CAPABILITY_MAJOR
            *value = architecture / 10;
            return CUDA_SUCCESS;
        case 76:  // COMPUTE_CAPABILITY_MINOR
            *value = architecture % 10;
            return CUDA_SUCCESS;
        case 81:  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            *value = multiprocessor_memory;
            return CUDA_SUCCESS;
        case 97:  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            *value = multiprocessor_memory - 1024;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}
FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    ++contexts;
    *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(16 * device));
    return CUDA_SUCCESS;
}

FAKE CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
}
FAKE CUresult cuCtxPushCurrent_v2(CUcontext context) {
    below = current;
    current = context;
    return CUDA_SUCCESS;
}
FAKE CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    *context = current;
    current = below;
    below = nullptr;
    return CUDA_SUCCESS;
}

FAKE CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* exchanged) {
    std::swap(mode, *exchanged);
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
    *status =
        setting("FAKE_DRIVER_CAPTURING", 0) != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
FAKE CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
    *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return *address != 0 ? CUDA_SUCCESS : static_cast<CUresult>(2);  // CUDA_ERROR_OUT_OF_MEMORY
}
FAKE CUresult cuMemFree_v2(CUdeviceptr address) {
    std::free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
}
FAKE CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return current != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FAKE CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (setting("FAKE_DRIVER_CAPTURING", 0) != 0 && mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return static_cast<CUresult>(900);  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    if (!fake::is_image(static_cast<const char*>(image))) return CUDA_ERROR_INVALID_IMAGE;
    *module = reinterpret_cast<CUmodule>(static_cast<std::uintptr_t>(++loads));
    return CUDA_SUCCESS;
}
FAKE CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    if (std::strcmp(name, "flashtile_kernel") != 0) return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(module);
    return CUDA_SUCCESS;
}
FAKE CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute which, int value) {
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) shared_memory = value;
    return CUDA_SUCCESS;
}
FAKE CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void**, void**) {
    ++launches;
    return function != nullptr && current != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FAKE CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction function, void**, void**) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

FAKE CUresult cuGraphInstantiateWithFlags(CUgraphExec* graph, CUgraph, unsigned long long) {
    *graph = reinterpret_cast<CUgraphExec>(++graphs);
    return CUDA_SUCCESS;
}
FAKE CUresult cuGraphLaunch(CUgraphExec graph, CUstream) {
    launched_graph = reinterpret_cast<std::uintptr_t>(graph);
    return CUDA_SUCCESS;
}
FAKE CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
    const auto fast = static_cast<std::uintptr_t>(setting("FAKE_DRIVER_FAST_GRAPH", 0));
    *milliseconds = launched_graph == fast && fast != 0 ? 0.5f : 1.0f;
    return CUDA_SUCCESS;
}
