// block_kinds.h: what a user's lists of blocks (flashtile_block_lists) say of the scores: of each block of them whether
// it is hidden, shown as far as other masks show it, or shown whole whatever the mask function says. The lists come to
// a byte for each block before a call's kernels run, which ask for a tile's scores here. Blocks are counted from each
// sequence's start. The host compiler and NVRTC include this file; it includes nothing but mask.h.
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// mixed: of a region that blocks of several kinds share.
enum class BlockKind : unsigned char { hidden, partial, full, mixed };

// Blocks are at least so long, and their lengths multiples of it: tiles of up to as many rows or columns, that start at
// multiples of their length, lie in one block.
constexpr int kLeastListedBlock = 64;

// The blocks of one head.
template <class Int>
struct BlockKinds {
    const unsigned char* kind;  // a row for each block of queries; null: there are no lists
    Int block_q, block_k;       // queries and keys of a block
    Int row;                    // blocks of keys

    explicit operator bool() const { return kind != nullptr; }

    FLASHTILE_DEVICE BlockKind at(Int i, Int j) const {
        return static_cast<BlockKind>(kind[static_cast<Index>(i / block_q) * row + j / block_k]);
    }
    // Of queries [i0, i1) and keys [j0, j1): some, which the sequence has.
    FLASHTILE_DEVICE BlockKind of(Int i0, Int i1, Int j0, Int j1) const {
        const Int first = j0 / block_k, end = (j1 - 1) / block_k + 1;
        const unsigned char* line = kind + static_cast<Index>(i0 / block_q) * row;
        const unsigned char one = line[first];
        for (Int n = i0 / block_q; n <= (i1 - 1) / block_q; ++n, line += row)
            for (Int m = first; m < end; ++m)
                if (line[m] != one) return BlockKind::mixed;
        return static_cast<BlockKind>(one);
    }
    // The first key behind j's block.
    FLASHTILE_DEVICE Int end_of_block(Int j) const { return (j / block_k + 1) * block_k; }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
