// not_supported.cpp: the driver's functions that the emulator lacks. Weak, so that those that it has take their place.
#include "emulator/driver/exports.h"

using namespace flashtile::gpu;

#define FLASHTILE_DRIVER_FUNCTION(name, version, ...)                                             \
    extern "C" __attribute__((visibility("default"), weak)) CUresult name##version(__VA_ARGS__) { \
        return emulator::kNotSupported;                                                           \
    }
#include "cuda/driver_functions.inc"
