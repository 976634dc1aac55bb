// fake_nvrtc.cpp: an NVRTC for tests. Its machine code is the text of the program and its options. It appends a line
// for every compile to the file FAKE_NVRTC_LOG, so that compiles of all processes can be counted. FAKE_NVRTC_VERSION
// (130, ten times the version) and FAKE_NVRTC_NEWEST (120) shape it, FAKE_NVRTC_MILLISECONDS makes it slow and
// FAKE_NVRTC_FAIL has it fail with that log.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "fake_image.h"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

int setting(const char* name, int standard) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::atoi(value) : standard;
}

struct Program {
    std::string text, image, log;
};

Program& program(void* handle) {
    return *static_cast<Program*>(handle);
}

constexpr std::array known = {75, 80, 86, 89, 90, 100, 120};

int known_to(int newest) {
    int count = 0;
    for (const int architecture : known) count += architecture <= newest ? 1 : 0;
    return count;
}

}  // namespace

FAKE int nvrtcVersion(int* major, int* minor) {
    *major = setting("FAKE_NVRTC_VERSION", 130) / 10;
    *minor = setting("FAKE_NVRTC_VERSION", 130) % 10;
    return 0;
}
FAKE int nvrtcGetNumSupportedArchs(int* count) {
    *count = known_to(setting("FAKE_NVRTC_NEWEST", 120));
    return 0;
}
FAKE int nvrtcGetSupportedArchs(int* architectures) {
    std::memcpy(architectures, known.data(), sizeof(int) * known_to(setting("FAKE_NVRTC_NEWEST", 120)));
    return 0;
}
FAKE const char* nvrtcGetErrorString(int) {
    return "FAKE_NVRTC_ERROR";
}
FAKE int nvrtcCreateProgram(void** handle, const char* text, const char* name, int headers, const char* const* texts,
                            const char* const* names) {
    auto* made = new Program;
    made->text = std::string(name) + "\n" + text;
    for (int n = 0; n < headers; ++n) made->text += std::string(names[n]) + "\n" + texts[n];
    *handle = made;
    return 0;
}
FAKE int nvrtcDestroyProgram(void** handle) {
    delete static_cast<Program*>(*handle);
    *handle = nullptr;
    return 0;
}
FAKE int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
    std::string line = "compiled";
    for (int n = 0; n < count; ++n) line += std::string(" ") + options[n];
    if (const char* path = std::getenv("FAKE_NVRTC_LOG")) {
        const int file = ::open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
        const std::string text = line + "\n";
        if (::write(file, text.data(), text.size()) < 0) std::abort();
        ::close(file);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(setting("FAKE_NVRTC_MILLISECONDS", 0)));
    if (const char* failure = std::getenv("FAKE_NVRTC_FAIL")) {
        program(handle).log = failure;
        return 6;
    }
    program(handle).image = fake::image_of(program(handle).text + line);
    return 0;
}

namespace {

int size_of(const std::string& text, std::size_t* size) {
    *size = text.size() + 1;
    return 0;
}
int copy(const std::string& text, char* to) {
    std::memcpy(to, text.c_str(), text.size() + 1);
    return 0;
}

}  // namespace

FAKE int nvrtcGetCUBINSize(void* handle, std::size_t* size) {
    return size_of(program(handle).image, size);
}
FAKE int nvrtcGetCUBIN(void* handle, char* to) {
    return copy(program(handle).image, to);
}
FAKE int nvrtcGetPTXSize(void* handle, std::size_t* size) {
    return size_of(program(handle).image, size);
}
FAKE int nvrtcGetPTX(void* handle, char* to) {
    return copy(program(handle).image, to);
}
FAKE int nvrtcGetProgramLogSize(void* handle, std::size_t* size) {
    return size_of(program(handle).log, size);
}
FAKE int nvrtcGetProgramLog(void* handle, char* to) {
    return copy(program(handle).log, to);
}
