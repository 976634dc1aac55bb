// visited_blocks.h: which blocks of keys a block of queries visits, and which blocks of queries a block of keys visits.
// Every loop over a head's blocks asks here, so that who loads a block and who computes with it mean the same one. Of
// what kind a block is, is asked of the mask (Band::covers, Sequence::sees_any and sees_all): hidden blocks are not
// visited, whole ones need no mask, and in mixed ones each score is compared. The band (mask.h) is the first mask that
// answers: the rows that it lets be seen are one range, and so their blocks are neighbours. A cache's pages and lists
// of blocks are to answer with the same members. A user's mask function hides some of the blocks of a walk
// (block_map.h).
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// A walk visits `count` blocks, whose numbers are 0 to count - 1 in the order of the walk.
template <class Int>
struct VisitedBlocks {
    Int rows;  // of a block; each starts at a multiple of it
    Int first_block, count;

    // The blocks that hold some of the rows [first, end), which are those that are seen; none without `any`.
    FLASHTILE_DEVICE static VisitedBlocks holding(Int first, Int end, Int rows, bool any = true) {
        VisitedBlocks blocks;
        blocks.rows = rows;
        blocks.first_block = first / rows;
        blocks.count = first < end && any ? (end - 1) / rows - blocks.first_block + 1 : 0;
        return blocks;
    }

    // Where the n-th block of a walk starts, from the first block on or from the last one back.
    FLASHTILE_DEVICE Int forwards(Int n) const { return (first_block + n) * rows; }
    FLASHTILE_DEVICE Int backwards(Int n) const { return (first_block + count - 1 - n) * rows; }
    // The same of the next block, from where this one starts in whatever coordinates.
    FLASHTILE_DEVICE Int next_forwards(Int row) const { return row + rows; }
    FLASHTILE_DEVICE Int next_backwards(Int row) const { return row - rows; }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
