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

    // Of a Problem or of KernelParams, and of a sequence's lengths.
    template <class Options, class Length>
    FLASHTILE_DEVICE static Band of(const Options& options, Length seqlen_q, Length seqlen_k) {
        return {options.diagonal + (options.top_left ? 0 : seqlen_k - seqlen_q), options.window_left,
                options.window_right};
    }

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

// A band whose positions are cut in chunks: a query sees keys of the chunk of its own position i + offset only. Every
// bound still grows with i.
struct ChunkedBand : Band {
    Index chunk;  // 0: none

    template <class Options, class Length>
    FLASHTILE_DEVICE static ChunkedBand of(const Options& options, Length seqlen_q, Length seqlen_k) {
        return {Band::of(options, seqlen_q, seqlen_k), options.attention_chunk};
    }

    FLASHTILE_DEVICE Index first_key(Index i) const {
        const Index j = Band::first_key(i);
        return chunk == 0 ? j : later(j, chunk_start(i + offset));
    }
    FLASHTILE_DEVICE Index end_key(Index i, Index seqlen_k) const {
        const Index j = Band::end_key(i, seqlen_k);
        return chunk == 0 ? j : later(0, sooner(j, chunk_start(i + offset) + chunk));
    }
    FLASHTILE_DEVICE Index first_query(Index j) const {
        const Index i = Band::first_query(j);
        return chunk == 0 ? i : later(i, chunk_start(j) - offset);
    }
    FLASHTILE_DEVICE Index end_query(Index j, Index seqlen_q) const {
        const Index i = Band::end_query(j, seqlen_q);
        return chunk == 0 ? i : later(0, sooner(i, chunk_start(j) + chunk - offset));
    }
    FLASHTILE_DEVICE bool covers(Index i0, Index i1, Index j0, Index j1) const {
        const bool same_chunk =
            chunk == 0 || (j0 >= chunk_start(i1 - 1 + offset) && j1 <= chunk_start(i0 + offset) + chunk);
        return same_chunk && Band::covers(i0, i1, j0, j1);
    }

private:
    FLASHTILE_DEVICE static Index later(Index a, Index b) { return a > b ? a : b; }
    FLASHTILE_DEVICE static Index sooner(Index a, Index b) { return a < b ? a : b; }
    // Where the chunk of a position starts; positions before the first key are in chunks of their own.
    FLASHTILE_DEVICE Index chunk_start(Index position) const {
#ifdef __CUDA_ARCH__
        // Both fit 32 bits, and a division of 64 bits takes registers that products need.
        const Index n = static_cast<int>(position) / static_cast<int>(chunk);
#else
        const Index n = position / chunk;
#endif
        return (position < n * chunk ? n - 1 : n) * chunk;
    }
};

// A score at or below this counts as minus infinity, on every backend (masks of finfo.min are common).
constexpr float kHiddenScore = -1e30f;

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
