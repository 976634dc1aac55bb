// tile_rounds.h: how the tiles of Hopper's forward kernel are dealt out to its thread blocks, as far as the host can
// compute it before they run. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Where masks make tiles unequal, most are dealt out as pairs: a head's longest tile with its shortest, the next
// longest with the next shortest. All pairs are equal, and they go head by head, so that K and V of few heads are in
// the cache at a time. The last one to two rounds of pairs are dealt out as single tiles, from the longest to the
// shortest and back again, so that all thread blocks end at about the same time. Equal tiles go head by head.
struct TileRounds {
    unsigned tiles;   // of a head
    unsigned pairs;   // of a head; the middle one of an odd number of tiles is a pair alone
    unsigned heads;   // of all sequences
    unsigned rounds;  // of pairs
    // The rounds leave `rest` tiles: all tiles of heads [first_head, heads), and of the head before first_head those
    // that are neither among its `taken` longest nor its `taken` shortest.
    unsigned first_head, taken, rest;
};

constexpr TileRounds tile_rounds(unsigned tiles, unsigned heads, unsigned thread_blocks, bool unequal) {
    const unsigned pairs = (tiles + 1) / 2;
    if (!unequal || tiles * heads == 0) return {tiles, pairs, heads, 0, 0, 0, tiles * heads};
    const unsigned whole_rounds = pairs * heads / thread_blocks;
    const unsigned rounds = whole_rounds > 1 ? whole_rounds - 1 : 0, dealt = rounds * thread_blocks;
    const unsigned first_head = (dealt + pairs - 1) / pairs, taken = dealt % pairs;
    const unsigned rest = (heads - first_head) * tiles + (taken == 0 ? 0 : tiles - 2 * taken);
    return {tiles, pairs, heads, rounds, first_head, taken, rest};
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
