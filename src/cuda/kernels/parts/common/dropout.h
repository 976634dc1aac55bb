// dropout.h: removes dropped probabilities from one warp's P. One Philox call gives the eight draws of a lane's
// accumulators in a square of 16 x 16 (shared/philox.h).
#pragma once

#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/ptx/permute.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/philox.h"

namespace flashtile {

// The seed and the offset, which may lie in device memory.
struct DropoutSeed {
    unsigned long long seed, offset;

    __device__ __forceinline__ explicit DropoutSeed(const KernelParams& p)
        : seed(p.seed_ptr != nullptr ? *p.seed_ptr : p.seed),
          offset(p.offset_ptr != nullptr ? *p.offset_ptr : p.offset) {}
};

__device__ __forceinline__ Dropout dropout_of(const KernelParams& p, const Sequence& s) {
    const DropoutSeed given(p);
    return Dropout::make(given.seed, given.offset, static_cast<unsigned>(p.origin_b + s.b),
                         static_cast<unsigned>(p.origin_h + s.h), p.dropout_threshold);
}

// What kept probabilities are multiplied by; 1 without dropout.
template <KernelConfig config>
__device__ __forceinline__ float kept_factor(const KernelParams& p) {
    return config.dropout ? Dropout::scale(p.dropout_threshold) : 1.0f;
}

// Calls body(m, n, half, word) for every two neighbours in a row, the accumulators e = 2 half and 2 half + 1: their
// draws are the low and the high half of `word`. place.i0, place.j0 and the origins are multiples of 16
// (config.shifted_dropout is off).
template <int MT, int NT, class Body>
__device__ __forceinline__ void each_draw(const Dropout& dropout, const KernelParams& p, const Place& place,
                                          Body body) {
    const unsigned rows = Dropout::row_group(static_cast<unsigned>(p.origin_i + place.i0) + lane_id() / 4);
    const unsigned columns = Dropout::column_group(static_cast<unsigned>(p.origin_j + place.j0) + lane_id() % 4 * 2);
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            // 16 rows are 8 row groups, and 16 columns are 4 column groups.
            const Philox draws =
                dropout.draw(rows + static_cast<unsigned>(m) * 8, columns + static_cast<unsigned>(n) * 2);
#pragma unroll
            for (int word = 0; word < 4; ++word)
                if (n + word / 2 < NT) body(m, n + word / 2, word % 2, draws.word[word]);
        }
}

// Calls drop(m, n, e) for every accumulator that is dropped.
template <KernelConfig config, int MT, int NT, class Drop>
__device__ __forceinline__ void each_dropped(const KernelParams& p, const Sequence& seq, const Place& place,
                                             Drop drop) {
    const Dropout dropout = dropout_of(p, seq);
    if constexpr (config.shifted_dropout) {
        const auto i0 = static_cast<unsigned>(origin_i_of(p, seq.b) + place.i0),
                   j0 = static_cast<unsigned>(origin_j_of(p, seq.b) + place.j0);
        each_score<MT, NT>([&](int m, int n, int e) {
            const unsigned i = i0 + static_cast<unsigned>(Place::row(m, e)),
                           j = j0 + static_cast<unsigned>(Place::column(n, e));
            // Dropout::keeps, with selects where that would index registers
            const Philox draws = dropout.draw(Dropout::row_group(i), Dropout::column_group(j));
            const unsigned left = (i & 8) != 0 ? draws.word[1] : draws.word[0],
                           right = (i & 8) != 0 ? draws.word[3] : draws.word[2];
            const unsigned word = (j & 8) != 0 ? right : left;
            if (((j & 1) != 0 ? word >> 16 : word & 0xFFFFu) < dropout.threshold) drop(m, n, e);
        });
        return;
    }
    each_draw<MT, NT>(dropout, p, place, [&](int m, int n, int half, unsigned word) {
        if ((word & 0xFFFFu) < dropout.threshold) drop(m, n, 2 * half);
        if (word >> 16 < dropout.threshold) drop(m, n, 2 * half + 1);
    });
}

// Which probabilities are kept, for P as Hopper's products take it, in pairs of 16 bits. One warp draws a bit for each
// probability, and the warp that holds them drops. l remains the sum of P before that.
template <int NT>
struct KeptBits {
    static constexpr int kPairs = 2 * NT, kWords = kept_words(8 * NT);  // of a lane; a word has 16 pairs
    static constexpr int kBytes = kWords * 128;                         // of a warp

    // Draws this lane's words, and writes them to the warp's place in shared memory.
    __device__ static __forceinline__ void draw(const Dropout& dropout, const KernelParams& p, const Place& place,
                                                unsigned warp_place) {
        const unsigned least = (dropout.threshold - 1) * 0x10001u;  // the greatest draw that is dropped, in both halves
        unsigned bits[kWords] = {};
        each_draw<1, NT>(dropout, p, place, [&](int, int n, int half, unsigned word) {
            // One instruction compares both draws: it gives 1 if kept, else 0. The first pair ends up in the highest
            // bit.
            const unsigned kept = __viaddmin_u16x2(__vmaxu2(word, least), __vneg2(least), 0x10001u);
            unsigned& to = bits[(2 * n + half) / 16];
            to = 2 * to + kept;
        });
#pragma unroll
        for (int w = 0; w < kWords; ++w)
            ptx::store_shared(warp_place + (w * 32 + lane_id()) * 4,
                              bits[w] << (w * 16 + 16 > kPairs ? 16 - kPairs % 16 : 0));
    }

    template <class Left>
    __device__ static __forceinline__ void drop(Left& p, unsigned warp_place) {
        unsigned bits[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w) bits[w] = ptx::load_shared_word(warp_place + (w * 32 + lane_id()) * 4);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
            // The highest bit of either half is spread over that half.
            p.a[0][pair / 4][pair % 4] &= ptx::permute(bits[pair / 16] << pair % 16, 0xBB99);
    }
};

}  // namespace flashtile
