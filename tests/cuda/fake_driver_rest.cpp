// fake_driver_rest.cpp: the functions of the fake driver that no test asks about: each succeeds and does nothing. Weak,
// so that fake_driver.cpp's own take their place.
#include "cuda/driver_types.h"

using namespace flashtile::gpu;

#define FLASHTILE_DRIVER_FUNCTION(name, version, ...)                                             \
    extern "C" __attribute__((visibility("default"), weak)) CUresult name##version(__VA_ARGS__) { \
        return CUDA_SUCCESS;                                                                      \
    }
#include "cuda/driver_functions.inc"
