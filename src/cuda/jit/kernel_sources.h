// kernel_sources.h: the text of the CUDA kernels and of what they include, embedded in the library at build time. The
// developer setting FLASHTILE_KERNEL_SOURCES, a folder laid out as src/, has them read from there instead.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cuda/jit/nvrtc.h"

namespace flashtile::gpu {

struct EmbeddedSource {
    std::string_view name;  // as it is included: "shared/mask.h", "cuda/kernels/forward_sm80.h"
    std::string_view text;
};

std::span<const EmbeddedSource> embedded_sources();

// The file and all that it includes, directly or not, whether or not a condition of the preprocessor leaves it out; in
// the order in which they are first met. Throws INTERNAL for a name that is not among `all`.
std::vector<SourceFile> with_includes(const std::string& name,
                                      std::span<const EmbeddedSource> all = embedded_sources());

}  // namespace flashtile::gpu
