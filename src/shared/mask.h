// mask.h: which keys a query may see. A mask supplies the trip counts and the rule for single keys in one place, so
// that they cannot drift apart: blocks outside the band are skipped, blocks inside it need no mask, and blocks on its
// border compare each key with the query's bounds. Included by the host compiler and by NVRTC; includes nothing.
#pragma once

#ifndef FLASHTILE_TARGET
#define FLASHTILE_TARGET generic
#endif

#ifndef FLASHTILE_DEVICE
#ifdef __CUDACC__
#define FLASHTILE_DEVICE __device__ __forceinline__
#else
#define FLASHTILE_DEVICE inline
#endif
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

using Index = long long;

// Query i sees keys j with i + offset - left <= j <= i + offset + right; a negative side is open. `offset` is
// seqlen_k - seqlen_q (bottom-right) or 0 (top-left); causal is right = 0. Every bound below grows with i, which is why
// a block of queries or keys needs to ask about its first and last row only.
struct Band {
    Index offset;
    Index left;
    Index right;

    // Where query i's keys start and end if keys went on for ever both ways: both grow by one with i.
    static constexpr Index kOpen = Index{1} << 62;
    FLASHTILE_DEVICE Index start(Index i) const { return left < 0 ? -kOpen : i + offset - left; }
    FLASHTILE_DEVICE Index stop(Index i) const { return right < 0 ? kOpen : i + offset + right + 1; }

    // Keys that query i sees: [first_key(i), end_key(i)).
    FLASHTILE_DEVICE Index first_key(Index i) const {
        const Index j = start(i);
        return j < 0 ? 0 : j;
    }
    FLASHTILE_DEVICE Index end_key(Index i, Index seqlen_k) const {
        const Index j = stop(i);
        return j > seqlen_k ? seqlen_k : (j < 0 ? 0 : j);
    }

    // Queries that see key j: [first_query(j), end_query(j)).
    FLASHTILE_DEVICE Index first_query(Index j) const {
        const Index i = j - offset - right;
        return right < 0 || i < 0 ? 0 : i;
    }
    FLASHTILE_DEVICE Index end_query(Index j, Index seqlen_q) const {
        const Index i = j - offset + left + 1;
        return left < 0 || i > seqlen_q ? seqlen_q : (i < 0 ? 0 : i);
    }

    // True if every query of [i0, i1) sees every key of [j0, j1): such a block needs no mask.
    FLASHTILE_DEVICE bool covers(Index i0, Index i1, Index j0, Index j1) const {
        return (left < 0 || j0 >= i1 - 1 + offset - left) && (right < 0 || j1 - 1 <= i0 + offset + right);
    }
};

// A score at or below this counts as minus infinity, on every backend (masks of finfo.min are common).
constexpr float kHiddenScore = -1e30f;

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
