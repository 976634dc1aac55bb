// warp_grid.h: how the warps of a thread block share a matrix of results.
#pragma once

#include "cuda/kernels/parts/common/element.h"

namespace flashtile {

// A result of kRows x kColumns: kDown of the warps lie below each other, the others side by side.
template <int kRows, int kColumns, int kWarps, int kDown>
struct WarpGrid {
    static constexpr int kAcross = kWarps / kDown;
    static_assert(kWarps % kDown == 0 && kRows % (kDown * 16) == 0 && kColumns % (kAcross * 8) == 0, "");
    static constexpr int MT = kRows / kDown / 16, NT = kColumns / kAcross / 8;
    using Accumulators = Fragments<MT, NT>;

    __device__ static __forceinline__ int row() { return static_cast<int>(warp_id()) % kDown * MT * 16; }
    __device__ static __forceinline__ int column() { return static_cast<int>(warp_id()) / kDown * NT * 8; }
};

}  // namespace flashtile
