// key_places.h: where the keys of a block lie in a paged cache. Threads look a block's rows up in the block table one
// step before the block is loaded, so that nobody waits for the table, and leave them in shared memory, where they also
// tell which keys lie in no page at all: those are hidden.
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

template <KernelConfig config>
struct KeyPlaces {
    // Places of the blocks that are loaded, of the next one, and of the one that is worked on.
    static constexpr int kSlots = key_place_slots(config);

    int2* memory;  // (page, row of the page) of each key; page -1: no such key

    __device__ __forceinline__ const int2* block(int n) const { return memory + n % kSlots * config.Bc; }

    // Finds block n, the keys [j0, j0 + Bc), of which those outside [first, end) are not looked up.
    __device__ __forceinline__ void find(const KernelParams& p, const Sequence& seq, int n, int j0, int first,
                                         int end) const {
        const int* const table = p.block_table + seq.b * p.block_table_stride;
        const int* const of_prefix = p.block_table + seq.prefix_row * p.block_table_stride;
        for (int row = static_cast<int>(threadIdx.x); row < config.Bc; row += config.warps * 32) {
            const int j = j0 + row;
            int2 place = make_int2(-1, 0);
            if (j >= first && j < end) {
                const unsigned number = static_cast<unsigned>(j) / static_cast<unsigned>(p.page_size);
                const int page = (j < seq.prefix ? of_prefix : table)[number];
                if (page >= 0 && page < p.cache_rows)
                    place = make_int2(page, j - static_cast<int>(number) * p.page_size);
            }
            memory[n % kSlots * config.Bc + row] = place;
        }
    }

    // Hides the keys of block n that lie in no page.
    template <int MT, int NT>
    __device__ __forceinline__ void hide_unnamed(Fragments<MT, NT>& s, int n) const {
        const int2* const places = block(n);
        bool all = true;
        for (int row = static_cast<int>(lane_id()); row < config.Bc; row += kLanes) all = all && places[row].x >= 0;
        if (__all_sync(~0u, all)) return;
        each_score<MT, NT>([&](int m, int column, int e) {
            if (places[Place::column(column, e)].x < 0) s.c[m][column][e] = -infinity();
        });
    }
};

}  // namespace flashtile
