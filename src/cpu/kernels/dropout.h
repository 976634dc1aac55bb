// dropout.h: the dropout mask of one tile: what shared/philox.h computes for one query, for a vector of queries. One
// draw decides the four columns {j, j^1, j^8, j^9} of each lane's row.
#pragma once

#include "cpu/kernels/scores.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct VectorPhilox {
    UintVec word[4];

    // Philox4x32 with 7 rounds, as philox4x32 in shared/philox.h.
    static VectorPhilox draw(const Dropout& dropout, UintVec rows, uint32_t columns) {
        const UintVec zero{};
        VectorPhilox c{{rows, zero + columns, zero + dropout.head, zero + dropout.offset}};
        uint32_t key0 = dropout.key0, key1 = dropout.key1;
        for (int round = 0; round < 7; ++round) {
            UintVec low0, high0, low1, high1;
            multiply(c.word[0], 0xD2511F53u, low0, high0);
            multiply(c.word[2], 0xCD9E8D57u, low1, high1);
            c = {{high1 ^ c.word[1] ^ key0, low1, high0 ^ c.word[3] ^ key1, low0}};
            key0 += 0x9E3779B9u;
            key1 += 0xBB67AE85u;
        }
        return c;
    }

private:
    static void multiply(UintVec x, uint32_t m, UintVec& low, UintVec& high) {
        const WideVec even = multiply_even(x, m);
        const WideVec odd = multiply_even(reinterpret_cast<UintVec>(reinterpret_cast<WideVec>(x) >> 32), m);
        low = reinterpret_cast<UintVec>((even & 0xFFFFFFFFu) | (odd << 32));
        high = reinterpret_cast<UintVec>((even >> 32) | (odd & ~uint64_t{0xFFFFFFFFu}));
    }
};

// keep[j - j0][lane] = 1 where dropout keeps a probability, else 0. The factor 65536 / (65536 - t) of kept values is
// applied once, to what they add up to.
inline void dropout_keep(const Head& head, const ScoreTile& tile, float* keep) {
    const int64_t first_j = head.origin_j + tile.j0, end_j = head.origin_j + tile.j1;
    for (int half = 0; half < 2; ++half) {
        UintVec rows, below;  // row group; all ones where the row's bit 3 is set
        for (int lane = 0; lane < kLanes; ++lane) {
            const auto i = static_cast<unsigned>(head.origin_i + tile.i0 + half * kLanes + lane);
            rows[lane] = Dropout::row_group(i);
            below[lane] = (i & 8) != 0 ? ~0u : 0u;
        }
        for (int64_t base = first_j / 16 * 16; base < end_j; base += 16)
            for (int64_t pair = 0; pair < 8; pair += 2) {
                const auto drawn =
                    VectorPhilox::draw(head.dropout, rows, Dropout::column_group(static_cast<unsigned>(base + pair)));
                const UintVec left = (drawn.word[1] & below) | (drawn.word[0] & ~below);
                const UintVec right = (drawn.word[3] & below) | (drawn.word[2] & ~below);
                const UintVec draws[4] = {left & 0xFFFFu, left >> 16, right & 0xFFFFu, right >> 16};
                for (int n = 0; n < 4; ++n) {
                    const int64_t j = base + pair + (n & 1) + (n >> 1) * 8;
                    if (j < first_j || j >= end_j) continue;
                    store(keep + (j - first_j) * kPanel + half * kLanes,
                          draws[n] >= head.dropout.threshold ? broadcast(1.0f) : Vec{});
                }
            }
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
