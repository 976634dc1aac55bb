// found_tiles.h: tiles that a warp beside the producer finds for it. Where only the device knows what a tile has to do,
// finding one takes longer than a step of the consumers, which would wait for keys meanwhile.
#pragma once

#include "cuda/kernels/parts/hopper/ring.h"
#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/kernel_layout.h"

namespace flashtile {

template <KernelConfig config>
struct FoundTiles {
    using Tile = QueryTile<config>;
    static constexpr unsigned kEnd = ~0u;  // in place of a head: there is no other tile
    static_assert(16 + Tile::kBytes <= kFoundTileBytes, "");

    const KernelParams& params;
    unsigned place;  // shared address: the number of the tile that was found last, and the tile
    Ring<1> ring;
    bool ended = false;

    // The finder, one thread, which is one tile ahead of the producer.
    template <class Schedule>
    __device__ __forceinline__ void find(Schedule schedule) {
        bool more = true;
        while (more) {
            ring.wait_empty();
            TileNumber number{kEnd, 0};
            more = schedule.next(number);
            ptx::store_shared(place, make_uint4(more ? number.head : kEnd, number.block, 0, 0));
            if (more) Tile(params, number).write(params, place + 16);
            ptx::mbarrier_arrive(ring.full_barrier());
            ring.advance();
        }
    }

    // The producer's: false behind the last tile. After each tile it calls take().
    __device__ __forceinline__ bool next(TileNumber& number) {
        if (ended) return false;
        ring.wait_full();
        const uint4 words = ptx::load_shared(place);
        number = {words.x, words.y};
        ended = words.x == kEnd;
        return !ended;
    }
    __device__ __forceinline__ Tile take() {
        const Tile tile = Tile::read(params, place + 16);
        ring.release();
        ring.advance();
        return tile;
    }
};

}  // namespace flashtile
