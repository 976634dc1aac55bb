// swizzled_tile.h: where an element lies in a tile of 16-bit values as the copy engine's 128-byte swizzle leaves it
// (sm_90): chunks of 64 columns, each of rows of 128 bytes, whose pieces of 16 bytes change places from row to row.
#pragma once

#include "shared/kernel_layout.h"

namespace flashtile {

template <int kTileRows>
__device__ __forceinline__ unsigned place_in_tile(unsigned tile, int row, int column) {
    const unsigned offset = row * 128 + column % kChunk * 2;
    return tile + column / kChunk * kTileRows * 128 + (offset ^ (offset >> 3 & 0x70));
}

}  // namespace flashtile
