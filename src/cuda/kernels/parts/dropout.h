// dropout.h: takes dropped probabilities out of one warp's P. One Philox call gives the eight draws of a lane's
// accumulators in a 16 x 16 square (shared/philox.h).
#pragma once

#include "cuda/kernels/parts/scores.h"
#include "shared/philox.h"

namespace flashtile {

__device__ __forceinline__ Dropout dropout_of(const KernelParams& p, const Sequence& s) {
    const unsigned long long seed = p.seed_ptr != nullptr ? *p.seed_ptr : p.seed;
    const unsigned long long offset = p.offset_ptr != nullptr ? *p.offset_ptr : p.offset;
    return Dropout::make(seed, offset, static_cast<unsigned>(p.origin_b + s.b), static_cast<unsigned>(p.origin_h + s.h),
                         p.dropout_threshold);
}

// Calls drop(m, n, e) for every accumulator that is dropped. place.i0, place.j0 and the origins are multiples of 16.
template <int MT, int NT, class Drop>
__device__ __forceinline__ void each_dropped(const Dropout& dropout, const KernelParams& p, const Place& place,
                                             Drop drop) {
    const unsigned i0 = static_cast<unsigned>(p.origin_i + place.i0) + lane_id() / 4;
    const unsigned j0 = static_cast<unsigned>(p.origin_j + place.j0) + lane_id() % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            const Philox draws =
                dropout.draw(Dropout::row_group(i0 + m * 16), Dropout::column_group(j0 + static_cast<unsigned>(n) * 8));
#pragma unroll
            for (int half = 0; half < 2; ++half)  // of the columns
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const unsigned word = draws.word[e / 2 + 2 * half];
                    const unsigned draw = e % 2 == 0 ? word & 0xFFFFu : word >> 16;
                    if (n + half < NT && draw < dropout.threshold) drop(m, n + half, e);
                }
        }
}

// The same, drawn before there are scores: the draws take no less time than the exponentials, and so are made under the
// product that computes S.
template <int NT>
struct Drops {
    unsigned bits[(NT + 7) / 8];  // one for each accumulator

    __device__ __forceinline__ void draw(const Dropout& dropout, const KernelParams& p, const Place& place) {
#pragma unroll
        for (unsigned& word : bits) word = 0;
        each_dropped<1, NT>(dropout, p, place, [&](int, int n, int e) { bits[n / 8] |= 1u << (n % 8 * 4 + e); });
    }
    __device__ __forceinline__ void apply(Fragments<1, NT>& probabilities) const {
        each_score<1, NT>([&](int m, int n, int e) {
            if ((bits[n / 8] >> (n % 8 * 4 + e) & 1) != 0) probabilities.c[m][n][e] = 0.0f;
        });
    }
};

}  // namespace flashtile
