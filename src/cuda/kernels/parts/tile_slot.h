// tile_slot.h: what the producer and the consumers of Hopper's forward kernel tell each other of a stage of Q.
#pragma once

#include "cuda/kernels/parts/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"

namespace flashtile {

struct TileSlot {
    static constexpr int kBytes = 16;
    // In place of a head: no tile, and no tile any more.
    static constexpr unsigned kBlank = ~1u, kEnd = ~0u;

    TileNumber number;
    bool careful;  // done again: no maximum is skipped, and V of hidden keys is left out
    bool redo;     // P or O overflowed, or is no number

    __device__ __forceinline__ bool is_tile() const { return number.head < kBlank; }
    __device__ static __forceinline__ TileSlot read(unsigned address) {
        const uint4 words = ptx::load_shared(address);
        return {{words.x, words.y}, words.z != 0, words.w != 0};
    }
    __device__ __forceinline__ void write(unsigned address) const {
        ptx::store_shared(address, make_uint4(number.head, number.block, careful, redo));
    }
    __device__ static __forceinline__ void ask_again(unsigned address) { ptx::store_shared(address + 12, 1); }
};

}  // namespace flashtile
