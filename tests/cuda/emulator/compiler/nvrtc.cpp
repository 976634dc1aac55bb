// nvrtc.cpp: an NVRTC that compiles kernels for the host, so that they run on the emulated driver. Its cubins are
// shared objects. Its version is made of what it puts in place of CUDA's own, so that no kernel of another state of the
// emulator is taken from a cache.
#include <cstring>
#include <string>
#include <vector>

#include "emulator/compiler/compile.h"
#include "emulator/image.h"

#define NVRTC extern "C" __attribute__((visibility("default")))

namespace {

enum Result : int { kSuccess = 0, kCompilation = 6 };

struct Made {
    emulator::Program program;
    std::string image, log;
};

Made& made(void* handle) {
    return *static_cast<Made*>(handle);
}

// NVRTC's texts end with a zero, which counts; its images do not.
int size_of(const std::string& bytes, std::size_t* size, int zero) {
    *size = bytes.size() + static_cast<std::size_t>(zero);
    return kSuccess;
}
int copy(const std::string& bytes, char* to, int zero) {
    std::memcpy(to, bytes.c_str(), bytes.size() + static_cast<std::size_t>(zero));
    return kSuccess;
}

constexpr int kArchitectures[] = {80, 86, 89, 90, 100, 120};

}  // namespace

NVRTC int nvrtcVersion(int* major, int* minor) {
    *major = 99;
    *minor = static_cast<int>(emulator::fingerprint() % 10'000'000);
    return kSuccess;
}
NVRTC int nvrtcGetNumSupportedArchs(int* count) {
    *count = static_cast<int>(std::size(kArchitectures));
    return kSuccess;
}
NVRTC int nvrtcGetSupportedArchs(int* architectures) {
    std::memcpy(architectures, kArchitectures, sizeof kArchitectures);
    return kSuccess;
}
NVRTC const char* nvrtcGetErrorString(int result) {
    return result == kCompilation ? "NVRTC_ERROR_COMPILATION" : "an error of the emulated NVRTC";
}
NVRTC int nvrtcCreateProgram(void** handle, const char* text, const char* name, int headers, const char* const* texts,
                             const char* const* names) {
    auto* fresh = new Made;
    fresh->program.main = {name, text};
    for (int n = 0; n < headers; ++n) fresh->program.headers.push_back({names[n], texts[n]});
    *handle = fresh;
    return kSuccess;
}
NVRTC int nvrtcDestroyProgram(void** handle) {
    delete static_cast<Made*>(*handle);
    *handle = nullptr;
    return kSuccess;
}
NVRTC int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
    std::string object;
    if (!emulator::compile(made(handle).program, {options, options + count}, object, made(handle).log))
        return kCompilation;
    made(handle).image = emulator::image_of(object);
    return kSuccess;
}
NVRTC int nvrtcGetCUBINSize(void* handle, std::size_t* size) {
    return size_of(made(handle).image, size, 0);
}
NVRTC int nvrtcGetCUBIN(void* handle, char* to) {
    return copy(made(handle).image, to, 0);
}
NVRTC int nvrtcGetPTXSize(void* handle, std::size_t* size) {
    return size_of(made(handle).image, size, 0);
}
NVRTC int nvrtcGetPTX(void* handle, char* to) {
    return copy(made(handle).image, to, 0);
}
NVRTC int nvrtcGetProgramLogSize(void* handle, std::size_t* size) {
    return size_of(made(handle).log, size, 1);
}
NVRTC int nvrtcGetProgramLog(void* handle, char* to) {
    return copy(made(handle).log, to, 1);
}
