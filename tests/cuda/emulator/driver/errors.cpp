// errors.cpp: the driver's errors in words, and the functions that the emulator lacks.
#include <cstdio>
#include <mutex>

#include "emulator/driver/exports.h"

using namespace flashtile::gpu;

namespace {

std::mutex mutex;
std::string last;  // why the last call failed

}  // namespace

CUresult emulator::failed(CUresult result, const std::string& why) {
    const std::lock_guard lock(mutex);
    last = why;
    std::fprintf(stderr, "emulator: %s\n", why.c_str());
    return result;
}

EMULATED cuGetErrorName(CUresult result, const char** name) {
    switch (static_cast<int>(result)) {
        case CUDA_ERROR_OUT_OF_MEMORY:
            *name = "CUDA_ERROR_OUT_OF_MEMORY";
            break;
        case CUDA_ERROR_INVALID_IMAGE:
            *name = "CUDA_ERROR_INVALID_IMAGE";
            break;
        case emulator::kLaunchFailed:
            *name = "CUDA_ERROR_LAUNCH_FAILED";
            break;
        case emulator::kNotSupported:
            *name = "CUDA_ERROR_NOT_SUPPORTED";
            break;
        default:
            *name = "an error of the emulated driver";
    }
    return CUDA_SUCCESS;
}
EMULATED cuGetErrorString(CUresult result, const char** text) {
    const std::lock_guard lock(mutex);
    thread_local std::string own;
    own = result == emulator::kLaunchFailed || result == CUDA_ERROR_INVALID_IMAGE ? last : "emulated";
    *text = own.c_str();
    return CUDA_SUCCESS;
}
