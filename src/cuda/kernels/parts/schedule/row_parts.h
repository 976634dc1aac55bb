// row_parts.h: where the workspace has the parts of a row of O, for combine_shares.h.
#pragma once

#include "cuda/kernels/parts/schedule/share_schedule.h"

namespace flashtile {

template <KernelConfig config>
struct RowParts {
    int count;
    Index first, second;  // numbers of the first two parts
    Index step;           // from the second part to the third, and so on

    // Query i of the sequence and its head.
    __device__ __forceinline__ RowParts(const KernelParams& p, const Sequence& seq, int i) {
        const bool grouped = config.group_rows > 1;
        const unsigned group = static_cast<unsigned>(p.group), h = static_cast<unsigned>(seq.h);
        const unsigned row = i * config.group_rows + (grouped ? h % group : 0), tile = row / config.Br;
        const unsigned tiles = static_cast<unsigned>(query_blocks<config>(seq.seqlen_q));
        const unsigned before = p.ws_first_unit[seq.b];
        const unsigned blocks =
            (p.ws_first_unit[seq.b + 1] - before) / (static_cast<unsigned>(tile_heads<config>(p)) * tiles);
        const unsigned begin = before + ((grouped ? h / group : h) * tiles + tile) * blocks;
        const unsigned share = KeyShares::of(p.ws_first_unit[p.batch], p.share_blocks);
        const Index thread_block = begin / share, of_part = static_cast<int>(row) % config.Br;
        count = static_cast<int>((begin + blocks - 1) / share - begin / share) + 1;
        first = shared_part(thread_block, true) * p.part_rows + of_part;
        second = shared_part(thread_block + 1, false) * p.part_rows + of_part;
        step = shared_part(1, false) * p.part_rows;
    }
    __device__ __forceinline__ Index operator[](int n) const { return n == 0 ? first : second + (n - 1) * step; }
};

}  // namespace flashtile
