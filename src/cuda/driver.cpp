// driver.cpp: see driver.h.
#include "cuda/driver.h"

#include <dlfcn.h>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"

namespace flashtile::gpu {
namespace {

struct Opened {
    Driver driver;
    std::string why_not = open();  // "": opened

private:
    std::string open();
};
constinit PerProcess<Opened> opened;

constexpr int kOldestVersion = 12000;

// The first function that is missing, or "".
std::string resolve(void* library, Driver& driver) {
#define FLASHTILE_DRIVER_FUNCTION(name, version, ...)                                            \
    driver.name = reinterpret_cast<CUresult (*)(__VA_ARGS__)>(::dlsym(library, #name #version)); \
    if (driver.name == nullptr) return #name #version;
#include "cuda/driver_functions.inc"
#undef FLASHTILE_DRIVER_FUNCTION
    return "";
}

std::string Opened::open() {
    const std::string wish = environment("FLASHTILE_CUDA_DRIVER");
    driver.path = !wish.empty() ? wish : "libcuda.so.1";
    void* library = ::dlopen(driver.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = ::dlerror();
        return "no CUDA driver: looked for " + driver.path + " on the loader's path (" +
               (reason != nullptr ? reason : "no reason given") + "). Install NVIDIA's driver, 525 or newer";
    }
    const std::string missing = resolve(library, driver);
    if (driver.cuDriverGetVersion != nullptr) driver.cuDriverGetVersion(&driver.version);
    if (!missing.empty() || driver.version < kOldestVersion) {
        return "the CUDA driver " + driver.path + " serves CUDA " + version_text(driver.version) +
               (missing.empty() ? "" : " and lacks " + missing) + "; needed is CUDA 12.0, NVIDIA's driver 525 or newer";
    }
    if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
        const char* reason = nullptr;
        driver.cuGetErrorString(result, &reason);
        return "the CUDA driver " + driver.path + " does not start: cuInit says " +
               (reason != nullptr ? reason : "nothing") + " (" + std::to_string(result) + ")" +
               (result == CUDA_ERROR_NOT_INITIALIZED ? ". So it is in a process that was forked after CUDA was started"
                                                     : "");
    }
    return "";
}

}  // namespace

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void Driver::fail(CUresult result, std::string_view what) const {
    const char* name = nullptr;
    const char* reason = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &reason);
    throw Error(result == CUDA_ERROR_OUT_OF_MEMORY ? FLASHTILE_OUT_OF_MEMORY : FLASHTILE_DEVICE_ERROR,
                std::string(what) + ": " + (name != nullptr ? name : "unknown error") + " (" + std::to_string(result) +
                    ")" + (reason != nullptr ? std::string(", ") + reason : ""));
}

const Driver& driver() {
    const Opened& once = opened.get();
    if (!once.why_not.empty()) throw Error(FLASHTILE_UNSUPPORTED, once.why_not);
    return once.driver;
}

std::string why_no_driver() {
    return opened.get().why_not;
}

}  // namespace flashtile::gpu
