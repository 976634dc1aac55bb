// backends.cpp: the visible, ordered list of backends. A new one is a line here.
#include "core/backend.h"
#include "core/error.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace flashtile {

std::array<const Backend*, 2> backends() {
    return {&cpu::backend(), &gpu::backend()};
}

const Backend& backend_for(std::int32_t device_type) {
    std::string known;
    for (const Backend* backend : backends()) {
        if (backend->device_type() == device_type) return *backend;
        known += std::string(known.empty() ? "" : ", ") + backend->name() + " (" +
                 std::to_string(backend->device_type()) + ")";
    }
    throw Error(FLASHTILE_UNSUPPORTED,
                "device_type is " + std::to_string(device_type) + ", and this build has a backend for: " + known);
}

}  // namespace flashtile
