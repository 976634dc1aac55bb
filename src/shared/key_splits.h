// key_splits.h: how the keys of a sequence with few queries are split (section 3.2 of the paper, for keys): every
// backend computes the parts apart and then folds them in their order. The rule knows the sequence's own number of keys
// only, so that a row's bits depend on nothing else. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// How many keys a split has. Where all is 0, KeySplits' own rule decides, which looks at one sequence alone.
struct SplitRule {
    Index forced = 0;  // so many splits
    Index keys = 0;    // so many keys in each split, a multiple of KeySplits::kUnit
};

// Hopper's forward lays the blocks of keys of all sequences, heads and tiles end to end, and gives each of its thread
// blocks an equal share of them, so that all of them end together, however unequal sequences are.
struct KeyShares {
    unsigned each;  // blocks of keys a thread block
    unsigned more;  // so many thread blocks, the first ones, have one more

    // Rounded, all shares are as long as the longest, and some thread blocks may have none. More tiles are then cut at
    // equal places, and fewer pieces are left of them, which pays where a piece's O takes as long as a block of keys.
    FLASHTILE_DEVICE static KeyShares of(unsigned total, unsigned thread_blocks, bool rounded) {
        if (rounded || total <= thread_blocks) {
            const unsigned each = (total + thread_blocks - 1) / thread_blocks;
            return {each > 0 ? each : 1, 0};
        }
        return {total / thread_blocks, total % thread_blocks};
    }
    // The first block of a thread block's share. It may lie behind the last one.
    FLASHTILE_DEVICE unsigned first_of(unsigned thread_block) const {
        return thread_block * each + (thread_block < more ? thread_block : more);
    }
    // In whose share a block is.
    FLASHTILE_DEVICE unsigned owner_of(unsigned block) const {
        const unsigned of_longer = more * (each + 1);
        return block < of_longer ? block / (each + 1) : more + (block - of_longer) / each;
    }
};

struct KeySplits {
    Index keys;   // of a split, but for the last
    Index count;  // at least 1

    // Splits start at multiples of this many keys, which blocks of keys divide.
    static constexpr Index kUnit = 128;
    // Fewer keys are not worth a part of their own, and more parts not the memory that they take.
    static constexpr Index kFewestKeys = 512;
    static constexpr Index kMost = 64;
    // The keys of a sequence with more queries are not split: its queries keep the machine busy.
    static constexpr Index kMostQueries = 64;

    FLASHTILE_DEVICE static KeySplits of(Index seqlen_k, const SplitRule& rule) {
        Index keys = rule.keys;
        if (keys == 0) {
            const Index wanted = rule.forced > 0 ? rule.forced : kMost, fewest = fewest_keys(rule);
            keys = ((seqlen_k + wanted - 1) / wanted + kUnit - 1) / kUnit * kUnit;
            if (keys < fewest) keys = fewest;
        }
        const Index count = (seqlen_k + keys - 1) / keys;
        return {keys, count > 0 ? count : 1};
    }

    // No sequence of so many keys or fewer has more splits.
    FLASHTILE_DEVICE static Index most(Index seqlen_k, const SplitRule& rule) {
        const Index fewest = fewest_keys(rule);
        const Index count = (seqlen_k + fewest - 1) / fewest, wanted = rule.forced > 0 ? rule.forced : kMost;
        if (count <= 0) return 1;
        return rule.keys == 0 && count > wanted ? wanted : count;
    }

private:
    FLASHTILE_DEVICE static Index fewest_keys(const SplitRule& rule) {
        return rule.keys > 0 ? rule.keys : (rule.forced > 0 ? kUnit : kFewestKeys);
    }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
