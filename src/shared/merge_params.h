// merge_params.h: what the kernel that merges partial results gets at launch.
// Included by the host compiler and by NVRTC.
#pragma once

#include "shared/kernel_layout.h"
#include "shared/kernel_params.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Tensors are the first part's; the distance to the next part is a stride in elements.
struct MergeParams {
    DeviceTensor outs, lses, out, lse;  // lse.data is null where LSE is not wanted
    Index outs_stride_part, lses_stride_part;
    Index parts;
    unsigned seqlen, heads;
    unsigned rows;  // of out, counted over (batch, seqlen, heads)
};

// Columns that a lane loads at once.
constexpr int merge_piece(const KernelConfig& c) {
    return c.vector_bytes / size_of(c.element);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
