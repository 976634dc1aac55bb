// describe.cpp: see describe.h.
#include "cuda/plan/describe.h"

#include <sstream>

#include "cuda/kernel_names.h"

namespace flashtile::gpu {

std::string describe(const Launch& launch) {
    const KernelConfig& c = launch.config;
    std::ostringstream text;
    text << name_of(c.kernel) << ' ' << name_of(c.element) << " d=" << c.head_dim << " dv=" << c.head_dim_v;
    if (c.value_slices > 1) text << " in " << c.value_slices << " slices";
    if (c.group_rows > 1) text << " group_rows=" << c.group_rows;
    text << ", " << c.Br << "x" << c.Bc << " tile, " << c.warps << " warps, " << c.stages << " stages, "
         << launch.shared_memory << " bytes of shared memory, " << c.vector_bytes << "-byte loads, " << launch.blocks
         << " blocks: " << launch.why;
    return text.str();
}

}  // namespace flashtile::gpu
