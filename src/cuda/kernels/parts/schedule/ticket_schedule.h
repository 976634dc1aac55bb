// ticket_schedule.h: which blocks of queries a thread block of a persistent kernel works on where the lengths of
// sequences lie in device memory, or a mask function says how much there is to do. The host cannot know it then, and so
// each thread block takes the next tile that none has taken. Tiles go head by head, or by sections of heads, so that K
// and V of few heads are in the cache at a time.
#pragma once

#include "cuda/kernels/parts/schedule/line_order.h"
#include "cuda/kernels/parts/schedule/packed_units.h"
#include "cuda/kernels/parts/schedule/sequence_order.h"

namespace flashtile {

template <KernelConfig config>
struct TicketSchedule {
    const KernelParams& params;
    SequenceOrder<config> order;
    LineOrder<config> lines;
    unsigned tiles;
    // The next number, taken while a tile is worked on, because the counter is far away. (A finder may wait for it.)
    static constexpr bool kAhead = !finds_tiles(config);
    unsigned ahead;

    __device__ __forceinline__ TicketSchedule(const KernelParams& p, const SequenceOrder<config>& sequences,
                                              const LineOrder<config>& of_map)
        : params(p),
          order(sequences),
          lines(of_map),
          tiles(static_cast<unsigned>(tile_heads<config>(p) * (order.fits() ? Index{order.tiles()}
                                                               : config.packed
                                                                   ? units().before(p.batch)
                                                                   : p.batch * query_blocks<config>(p.seqlen_q)))),
          ahead(kAhead ? draw() : 0) {}

    __device__ __forceinline__ bool next(TileNumber& tile) {
        while (true) {
            if (!kAhead) ahead = draw();
            const unsigned n = config.paged ? __shfl_sync(~0u, ahead, 0) : ahead;
            if (n >= tiles) return false;
            if (kAhead) ahead = draw();
            if (find(n, tile)) return true;
        }
    }

private:
    // Of a warp that produces, the first lane draws, and has heard its number by the time that all need it.
    __device__ __forceinline__ unsigned draw() const {
        return config.paged && lane_id() != 0 ? 0 : atomicAdd(params.ws_ticket, 1u);
    }

    __device__ __forceinline__ PackedUnits units() const {
        return {params.cu_seqlens_q, params.total_q, config.Br, params.batch};
    }

    // False where cumulative lengths are not in order, so that n is no tile.
    __device__ __forceinline__ bool find(unsigned n, TileNumber& tile) const {
        const unsigned heads = static_cast<unsigned>(tile_heads<config>(params));
        if (order.fits()) {
            tile = order.tile(n, heads);
            return true;
        }
        if constexpr (!config.packed) {
            const unsigned blocks = static_cast<unsigned>(query_blocks<config>(params.seqlen_q));
            const unsigned all = heads * static_cast<unsigned>(params.batch);
            tile = lines.fits() ? lines.tile(n, all, static_cast<unsigned>(params.section_heads))
                                : last_to_first(0, n, blocks);
            return true;
        }
        const Index wanted = n / heads, b = units().sequence_of(wanted);
        const Index first = units().before(b), blocks = units().before(b + 1) - first;
        if (blocks <= 0 || wanted < first || wanted >= first + blocks) return false;
        tile = last_to_first(static_cast<unsigned>(b) * heads, n - static_cast<unsigned>(first) * heads,
                             static_cast<unsigned>(blocks));
        return true;
    }
};

}  // namespace flashtile
