// mask_blocks.h: evaluates a mask function, and notes the blocks of scores that it shows something of (block_map.h). A
// function that does not ask for the head is evaluated once for all heads.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/functions.h"

namespace flashtile {

// One thread block makes one word: 32 blocks of keys of one block of queries. Each warp takes some of them, 16 queries
// at a time, until one is found that sees a key. Keys past the sequence's end may count as shown.
template <KernelConfig config>
__device__ __forceinline__ void mask_blocks(const KernelParams& p) {
    using Map = BlockMap<config>;
    Index n = blockIdx.x;
    const int first = static_cast<int>(n % Map::words(p)) * 32;
    n /= Map::words(p);
    const int i0 = static_cast<int>(n % Map::query_blocks(p)) * config.Br;
    n /= Map::query_blocks(p);
    const Sequence seq = Sequence::make<config>(p, n / p.block_map_heads, n % p.block_map_heads);
    const int i1 = smaller(i0 + config.Br, seq.seqlen_q);
    unsigned shown = 0;
    for (int k = static_cast<int>(warp_id()); k < 32; k += config.warps) {
        const int j0 = (first + k) * config.Bc;
        if (j0 >= seq.seqlen_k || !seq.sees_any<config>(i0, i1, j0, j0 + config.Bc)) continue;
        bool any = false;
        if constexpr (config.block_lists) {
            const int j1 = smaller(j0 + config.Bc, seq.seqlen_k);
            any = block_kinds_of(p, seq).of(i0, i1, j0, j1) != BlockKind::hidden;
        } else {
            ShownScores<config, 1, config.Bc / 8> scores;
            for (int i = i0; i < i1 && !any; i += 16) any = scores.find(p, seq, {i, j0});
        }
        if (any) shown |= 1u << k;
    }
    if (lane_id() == 0 && shown != 0) atomicOr(p.ws_block_map + blockIdx.x, shown);
}

}  // namespace flashtile
