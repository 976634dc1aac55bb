// part_places.h: where the workspace has what a piece of a tile's keys comes to, for those who write it
// (share_schedule.h) and for the combine, which reads it (row_parts.h).
#pragma once

#include "cuda/kernels/parts/schedule/tile_schedule.h"

namespace flashtile {

// Piece n of a tile is in the n-th thread block of those that share it. A thread block has at most two pieces that are
// not whole tiles: its first, which goes on where another has begun, and its last, which others go on with.
__device__ __forceinline__ Index shared_part(Index thread_block, bool begins) {
    return 2 * thread_block + (begins ? 1 : 0);
}

// With config.prefixes whole tiles are parts, too, and a thread block may have many. Along the list of all blocks of
// keys the number of the tile and that of the thread block never fall, and one of them grows from a piece to the next,
// so that their sum is a piece's own. Tiles are counted as if all sequences were as long as the longest. Parts of
// groups have Br rows, and lie behind those of sequences.
template <KernelConfig config>
struct PartPlaces {
    Index first;  // row of the workspace, for thread block 0
    Index step;   // from a thread block to the next

    // Tile `tile` of all heads of a sequence, which is numbered as Sequence::make_apart has it.
    __device__ static __forceinline__ PartPlaces of(const KernelParams& p, Index number, Index tile) {
        const Index heads = tile_heads<config>(p), most = heads * query_blocks<config>(p.seqlen_q);
        const Index group = number - p.batch, groups_end = p.batch + p.prefixes;
        if (group < 0 || number >= groups_end) {
            const Index sequence = group < 0 ? 2 * number : 2 * (number - groups_end) + 1;
            return {(sequence * most + tile) * p.part_rows, p.part_rows};
        }
        const Index behind = (2 * p.batch * most + p.share_blocks) * p.part_rows;
        const Index queries_before = Sequence::queries_before_group<config>(p, group);
        const Index tiles_before = (queries_before * config.group_rows / config.Br + group) * heads;
        return {behind + (tiles_before + tile) * config.Br, config.Br};
    }
};

}  // namespace flashtile
