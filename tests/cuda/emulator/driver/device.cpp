// device.cpp: the emulated driver: what it says of itself and of its one device. It is an A100, or, by
// FLASHTILE_EMULATOR_ARCH, another GPU of that compute capability (86, 89, 90, 100, 120).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "emulator/driver/exports.h"
#include "emulator/driver/memory.h"

using namespace flashtile::gpu;

namespace {

struct Facts {
    int architecture, multiprocessors, shared_kib, l2_mib;
};
constexpr Facts kDevices[] = {
    {80, 108, 164, 40}, {86, 84, 100, 6},     {89, 58, 100, 48},
    {90, 132, 228, 50}, {100, 148, 228, 126}, {120, 170, 100, 96},
};

const Facts& facts() {
    const char* wish = std::getenv("FLASHTILE_EMULATOR_ARCH");
    const int architecture = wish != nullptr ? std::atoi(wish) : 80;
    const auto* found = std::ranges::find(kDevices, architecture, &Facts::architecture);
    return found != std::end(kDevices) ? *found : kDevices[0];
}

// Few of them give persistent kernels a lot to do each.
int multiprocessors() {
    const char* wish = std::getenv("FLASHTILE_EMULATOR_SMS");
    return wish != nullptr ? std::atoi(wish) : facts().multiprocessors;
}

thread_local CUcontext current = nullptr;
thread_local CUcontext below[16];
thread_local int depth = 0;

CUcontext the_context() {
    static char context;
    return reinterpret_cast<CUcontext>(&context);
}

}  // namespace

EMULATED cuInit(unsigned) {
    return CUDA_SUCCESS;
}
EMULATED cuDriverGetVersion(int* version) {
    *version = 99000;
    return CUDA_SUCCESS;
}

EMULATED cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}
EMULATED cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EMULATED cuDeviceGetName(char* name, int size, CUdevice) {
    std::strncpy(name, ("emulated sm_" + std::to_string(facts().architecture)).c_str(), static_cast<std::size_t>(size));
    return CUDA_SUCCESS;
}
EMULATED cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    switch (which) {
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            *value = multiprocessors();
            return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
            *value = facts().l2_mib * 1024 * 1024;
            return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            *value = facts().architecture / 10;
            return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            *value = facts().architecture % 10;
            return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
            *value = facts().shared_kib * 1024;
            return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
            *value = (facts().shared_kib - 1) * 1024;
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
EMULATED cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = emulator::kTotalMemory;
    return CUDA_SUCCESS;
}
EMULATED cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    *total = emulator::kTotalMemory;
    *free = *total - emulator::allocated_bytes();
    return CUDA_SUCCESS;
}

EMULATED cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    *context = the_context();
    return CUDA_SUCCESS;
}
EMULATED cuDevicePrimaryCtxRelease_v2(CUdevice) {
    return CUDA_SUCCESS;
}
EMULATED cuCtxGetCurrent(CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
}
EMULATED cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}
EMULATED cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == static_cast<int>(std::size(below))) return CUDA_ERROR_INVALID_VALUE;
    below[depth++] = current;
    current = context;
    return CUDA_SUCCESS;
}
EMULATED cuCtxPopCurrent_v2(CUcontext* context) {
    if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    *context = current;
    current = below[--depth];
    return CUDA_SUCCESS;
}
EMULATED cuCtxSynchronize() {
    return CUDA_SUCCESS;
}
