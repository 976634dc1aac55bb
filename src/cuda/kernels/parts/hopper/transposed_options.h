// transposed_options.h: softcap, ALiBi and dropout where a warp holds S^T and P^T: its 16 rows are keys, and the
// columns are queries.
#pragma once

#include "cuda/kernels/parts/common/dropout.h"
#include "cuda/kernels/parts/common/scores.h"

namespace flashtile {

// place.i0 is the first key, place.j0 the first query.
template <KernelConfig config, int NT>
__device__ __forceinline__ void apply_alibi_transposed(Fragments<1, NT>& s, float slope, const Sequence& seq,
                                                       const Place& place) {
    const int distance = clamp_to_int(place.j0 + seq.band.offset - place.i0);
    each_score<1, NT>([&](int m, int n, int e) {
        const int d = distance + Place::column(n, e) - Place::row(m, e);
        s.c[m][n][e] -= slope * static_cast<float>(d < 0 ? -d : d);
    });
}

// Which of a lane's probabilities are kept, a bit each.
template <int NT>
struct KeptTransposed {
    static constexpr int kSquares = NT / 2;  // of 16 queries, with 8 bits each

    unsigned even[(kSquares + 3) / 4] = {}, odd[(kSquares + 3) / 4] = {};  // of even and odd queries

    // A Philox call gives the draws of rows i and i + 8 at two neighbouring keys and the two that are eight further.
    // Two lanes have such neighbours, and the queries 2c and 2c + 1 both: each calls for one query, and they exchange.
    __device__ __forceinline__ void draw(const Dropout& dropout, const KernelParams& p, const Place& place) {
        const unsigned parity = lane_id() / 4 % 2;
        const unsigned query = static_cast<unsigned>(p.origin_i + place.j0) + lane_id() % 4 * 2 + parity;
        const unsigned columns = Dropout::column_group(static_cast<unsigned>(p.origin_j + place.i0) + lane_id() / 4);
#pragma unroll
        for (int w = 0; w < (kSquares + 3) / 4; ++w) {
            unsigned own = 0;
#pragma unroll
            for (int n = 4 * w; n < 4 * w + 4 && n < kSquares; ++n) {
                const Philox draws = dropout.draw(Dropout::row_group(query) + static_cast<unsigned>(n) * 8, columns);
#pragma unroll
                for (int word = 0; word < 4; ++word) {
                    const unsigned at = static_cast<unsigned>(n % 4 * 8 + word * 2), both = draws.word[word];
                    own |= static_cast<unsigned>((both & 0xFFFFu) >= dropout.threshold) << at;
                    own |= static_cast<unsigned>(both >> 16 >= dropout.threshold) << (at + 1);
                }
            }
            const unsigned other = __shfl_xor_sync(~0u, own, 4);
            even[w] = (parity == 0 ? own : other) >> parity;
            odd[w] = (parity == 0 ? other : own) >> parity;
        }
    }

    // Of accumulator e of the n-th eight queries.
    __device__ __forceinline__ bool operator()(int n, int e) const {
        const int square = n / 2, bit = square % 4 * 8 + (n % 2 + e / 2 * 2) * 2;
        return ((e % 2 == 0 ? even : odd)[square / 4] >> bit & 1) != 0;
    }
};

}  // namespace flashtile
