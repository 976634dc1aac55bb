// key_splits.h: how the keys of a sequence with few queries are split (section 3.2 of the paper, for keys): every
// backend computes the parts apart and then folds them in their order. The rule knows the sequence's own number of keys
// only, so that a row's bits depend on nothing else. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/mask.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct KeySplits {
    Index keys;   // of a split, but for the last
    Index count;  // at least 1

    // Splits start at multiples of this many keys, which blocks of keys divide.
    static constexpr Index kUnit = 128;
    // Fewer keys are not worth a part of their own, and more parts not the memory that they take.
    static constexpr Index kFewestKeys = 512;
    static constexpr Index kMost = 64;

    // `forced`: so many parts, or as many as there are units; 0: the rule.
    FLASHTILE_DEVICE static KeySplits of(Index seqlen_k, Index forced) {
        const Index wanted = forced > 0 ? forced : kMost;
        Index keys = ((seqlen_k + wanted - 1) / wanted + kUnit - 1) / kUnit * kUnit;
        const Index fewest = forced > 0 ? kUnit : kFewestKeys;
        if (keys < fewest) keys = fewest;
        const Index count = (seqlen_k + keys - 1) / keys;
        return {keys, count > 0 ? count : 1};
    }

    // No sequence of so many keys or fewer has more splits.
    FLASHTILE_DEVICE static Index most(Index seqlen_k, Index forced) {
        const Index fewest = forced > 0 ? kUnit : kFewestKeys, wanted = forced > 0 ? forced : kMost;
        const Index count = (seqlen_k + fewest - 1) / fewest;
        return count > wanted ? wanted : (count > 0 ? count : 1);
    }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
