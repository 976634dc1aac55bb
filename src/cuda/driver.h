// driver.h: the CUDA driver, opened with dlopen when it is first asked for. A machine without one loses nothing but the
// CUDA backend, and the error says what is missing.
#pragma once

#include <string>

#include "cuda/driver_types.h"

namespace flashtile::cuda {

// The functions that are used, by their names in the driver.
struct Driver {
#define FLASHTILE_DRIVER_FUNCTION(name, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
#include "cuda/driver_functions.inc"
#undef FLASHTILE_DRIVER_FUNCTION

    void check(CUresult result, const std::string& what) const;  // throws DEVICE_ERROR: what, and the driver's reason
};

// Opens it once; throws UNSUPPORTED where there is none, naming what was looked for.
const Driver& driver();

// What driver() would throw, or "" where it is there.
std::string why_no_driver();

}  // namespace flashtile::cuda
