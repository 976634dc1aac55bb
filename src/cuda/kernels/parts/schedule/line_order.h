// line_order.h: the order in which tiles are dealt out beside a mask function's map: heads come in sections, and in a
// section the blocks of queries that see most come first, of all its heads, so that what thread blocks still work on at
// the end is short. Each thread block finds the order by itself before it begins.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/kernel_layout.h"

namespace flashtile {

template <KernelConfig config>
struct LineOrder {
    unsigned table;  // shared address: the n-th line of the map, by what it shows of the first head
    int lines;

    // Where maps have more lines, a head's tiles go from the last one to the first.
    __device__ __forceinline__ bool fits() const { return orders_lines(config) && lines <= kMostLines; }

    // All threads call this; a barrier must follow.
    __device__ __forceinline__ void find(const KernelParams& p) const {
        constexpr int kThreads = config.warps * 32;
        constexpr int kOwn = (kMostLines + kThreads - 1) / kThreads;  // lines of a thread
        const int all = static_cast<int>(BlockMap<config>::words(p)) * 32;
        unsigned rank[kOwn];
        for (int line = static_cast<int>(threadIdx.x); line < lines; line += kThreads) {
            const ShownBlocks shown{BlockMap<config>::line(p, 0, 0, line * config.Br)};
            ptx::store_shared(place(line), static_cast<unsigned>(shown.count(0, all)));
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kOwn; ++n) {
            const int own = static_cast<int>(threadIdx.x) + n * kThreads;
            rank[n] = 0;
            if (own >= lines) continue;
            const unsigned count = ptx::load_shared_word(place(own));
            for (int line = 0; line < lines; ++line) {
                const unsigned its = ptx::load_shared_word(place(line));
                rank[n] += its > count || (its == count && line > own) ? 1 : 0;
            }
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kOwn; ++n)
            if (const int own = static_cast<int>(threadIdx.x) + n * kThreads; own < lines)
                ptx::store_shared(place(static_cast<int>(rank[n])), static_cast<unsigned>(own));
    }

    // Tile n of all heads'. The first section has the heads, too, that are too few for one.
    __device__ __forceinline__ TileNumber tile(unsigned n, unsigned heads, unsigned section) const {
        const unsigned of_line = static_cast<unsigned>(lines), first = section + heads % section;
        unsigned head = 0, size = first;
        if (n >= first * of_line) {
            n -= first * of_line;
            const unsigned number = n / (section * of_line);
            n -= number * section * of_line;
            head = first + number * section;
            size = section;
        }
        const unsigned nth = n / size;
        return {head + n - nth * size, ptx::load_shared_word(place(static_cast<int>(nth)))};
    }

private:
    __device__ __forceinline__ unsigned place(int line) const {
        return table + static_cast<unsigned>(line) * 4;
    }
};

}  // namespace flashtile
