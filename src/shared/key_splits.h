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
    static constexpr unsigned kFewest = 2;  // blocks of keys that are worth a thread block

    FLASHTILE_DEVICE static unsigned of(unsigned total, unsigned thread_blocks) {
        const unsigned share = (total + thread_blocks - 1) / thread_blocks;
        return share > kFewest ? share : kFewest;
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
