// driver.h: the CUDA driver, opened with dlopen when it is first asked for. A machine without one loses nothing but the
// CUDA backend, and the error says what is missing.
#pragma once

#include <string>
#include <string_view>

#include "cuda/driver_types.h"

namespace flashtile::gpu {

// The functions that are used, by their names in the driver without the version.
struct Driver {
#define FLASHTILE_DRIVER_FUNCTION(name, version, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
#include "cuda/driver_functions.inc"
#undef FLASHTILE_DRIVER_FUNCTION

    std::string path;  // as it was opened
    int version = 0;   // 1000 * major + 10 * minor of the newest CUDA that it serves

    // Throws DEVICE_ERROR, or OUT_OF_MEMORY: what, and the driver's reason. Where making `what` costs something, test
    // the result first and call fail().
    void check(CUresult result, std::string_view what) const {
        if (result != CUDA_SUCCESS) fail(result, what);
    }
    [[noreturn]] void fail(CUresult result, std::string_view what) const;
};

// Opens it once; throws UNSUPPORTED where there is none, naming what was looked for. FLASHTILE_CUDA_DRIVER names
// another file than libcuda.so.1.
const Driver& driver();

// What driver() would throw, or "" where it is there.
std::string why_no_driver();

// "12.8" for 12080, as the driver and NVRTC count.
std::string version_text(int version);

}  // namespace flashtile::gpu
