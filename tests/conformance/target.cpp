// target.cpp: see target.h.
#include "conformance/target.h"

#include "gpu_resources/gpu_resources.h"

namespace flashtile::conformance {

std::string name(const Target& target) {
    return target.on_gpu() ? "cuda" : isa_name(target.which);
}

std::string why_not(const Target& target) {
    const std::string cannot = "this machine cannot run " + name(target);
    if (!target.on_gpu()) return isa_available(target.which) ? "" : cannot;
    const std::string reason = gpu_resources::why_not(target.where.id);
    return reason.empty() ? "" : cannot + ": " + reason;
}

}  // namespace flashtile::conformance
