// bias_and_mask.h: the additive bias, the boolean mask and the mask function of one warp's scores. They wait in
// registers, as they lie in memory, so that they can be loaded before the product that computes the scores and be there
// after it. A bias that TMA loads lies in shared memory.
#pragma once

#include "cuda/kernels/parts/common/functions.h"
#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/quad_transpose.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/parts/hopper/swizzled_tile.h"
#include "cuda/kernels/ptx/ldmatrix.h"

namespace flashtile {

// This lane's part of a matrix that is laid over the scores: of each row, the two neighbours of each tile of 8 columns,
// one after the other. They are packed into words; a word of bytes has the pairs of two tiles.
template <class T, int MT, int NT>
struct ScoreWords {
    static constexpr int kSize = sizeof(T), kWords = NT * 2 * kSize / 4;
    unsigned word[MT][2][kWords];
    bool dealt_out;  // otherwise this lane holds all columns of kTiles tiles

    // Starts the loads. Rows past the sequence's end read as its last row, columns past it as zero.
    __device__ __forceinline__ void load(const DeviceTensor& x, const Sequence& seq, const Place& place) {
        const T* head = static_cast<const T*>(x.data) + seq.b * x.stride_batch + seq.h * x.stride_head;
        const auto row_of = [&](int m, int half) {
            return head + smaller(place.i0 + Place::row(m, 2 * half), seq.seqlen_q - 1) * x.stride_row;
        };
        dealt_out = !kMayBeWhole || x.stride_col != 1 || place.j0 + NT * 8 > seq.seqlen_k ||
                    x.stride_row * kSize % 16 != 0 || reinterpret_cast<unsigned long long>(head) % 16 != 0;
        if (dealt_out) {
            const auto at = [&](const T* row, int n, int e) {
                const int column = place.j0 + Place::column(n, e);
                return bits(column < seq.seqlen_k ? row[column * x.stride_col] : T{});
            };
            each_row([&](int m, int half) {
#pragma unroll
                for (int w = 0; w < kWords; ++w) {
                    word[m][half][w] = 0;
#pragma unroll
                    for (int n = 0; n < 4 / kSize; ++n) {
                        const int element = w * 4 / kSize + n;
                        word[m][half][w] |= at(row_of(m, half), element / 2, element % 2) << n * kSize * 8;
                    }
                }
            });
        } else {
            each_row([&](int m, int half) {
                const T* from = row_of(m, half) + place.j0 + lane_id() % 4 * kTiles * 8;
#pragma unroll
                for (int w = 0; w < kWords; w += 4) {
                    const uint4 four = *reinterpret_cast<const uint4*>(from + w * 4 / kSize);
                    word[m][half][w] = four.x;
                    word[m][half][w + 1] = four.y;
                    word[m][half][w + 2] = four.z;
                    word[m][half][w + 3] = four.w;
                }
            });
        }
    }

    // Waits for the loads, and gives each lane its own columns.
    __device__ __forceinline__ void deal_out() {
        if (!dealt_out) each_row([&](int m, int half) { deal_out(word[m][half]); });
    }

private:
    // Four lanes share a row, so that each can bring all columns of kTiles tiles in vectors of 16 bytes.
    static constexpr int kTiles = NT / 4;
    static constexpr bool kMayBeWhole = NT % 4 == 0 && kTiles * 8 * kSize % 16 == 0;

    __device__ static __forceinline__ unsigned bits(unsigned short x) {
        return x;
    }
    __device__ static __forceinline__ unsigned bits(unsigned char x) {
        return x;
    }
    __device__ static __forceinline__ unsigned bits(float x) {
        return __float_as_uint(x);
    }

    template <class Body>
    __device__ static __forceinline__ void each_row(Body body) {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) body(m, half);
    }

    // Lane q has tiles q kTiles + t, with four pairs each; it gets pair q of all tiles.
    __device__ static __forceinline__ void deal_out(unsigned (&row)[kWords]) {
        unsigned result[kWords];
#pragma unroll
        for (int n = 0; n < kWords / 4; ++n) {
            unsigned words[4];  // words[p] is the n-th word for lane p
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                if constexpr (kSize == 1)
                    words[p] = __byte_perm(row[n * 4 + p / 2], row[n * 4 + 2 + p / 2], p % 2 == 0 ? 0x5410 : 0x7632);
                else
                    words[p] = kSize == 2 ? row[n * 4 + p] : row[n / 2 * 8 + p * 2 + n % 2];
            }
            transpose_in_quad(words);
#pragma unroll
            for (int q = 0; q < 4; ++q) result[q * (kWords / 4) + n] = words[q];
        }
#pragma unroll
        for (int w = 0; w < kWords; ++w) row[w] = result[w];
    }
};

template <Element kElement, BiasElement kBias>
struct BiasScalar {
    using Type = typename Math<kElement>::Scalar;
};
template <Element kElement>
struct BiasScalar<kElement, BiasElement::fp32> {
    using Type = float;
};

template <KernelConfig config, int MT, int NT>
struct BiasAndMask {
    using BiasType = typename BiasScalar<config.element, config.bias>::Type;

    __device__ __forceinline__ void load(const KernelParams& p, const Sequence& seq, const Place& place) {
        if constexpr (kBias) bias.load(p.bias, seq, place);
        if constexpr (config.mask) mask.load(p.mask, seq, place);
    }

    // Called once after each load.
    __device__ __forceinline__ void apply(Fragments<MT, NT>& s) {
        if constexpr (kBias) bias.deal_out();
        if constexpr (config.mask) mask.deal_out();
        if constexpr (config.bias_mapped) add_shared_bias(s);
        each_score<MT, NT>([&](int m, int n, int e) {
            float& x = s.c[m][n][e];
            if constexpr (kBias) x += bias_at(m, e / 2, n, e % 2);
            if constexpr (config.mask)
                if ((mask.word[m][e / 2][n / 2] & 0xFFu << (n % 2 * 2 + e % 2) * 8) == 0) x = -infinity();
        });
    }

    // Of the mask function; false if it shows nothing of the warp's block. To be called before the scores are computed.
    __device__ __forceinline__ bool find_shown(const KernelParams& p, const Sequence& seq, const Place& place) {
        if constexpr (config.mask_function)
            return shown.find(p, seq, place);
        else
            return true;
    }
    ShownScores<config, MT, NT> shown;
    AddedByDiagonal<config, NT, false> by_diagonal;  // beside a score function that is such

    // Where config.bias_mapped: the tile of Br rows that TMA loaded, and this warp's first row in it.
    unsigned bias_tile;
    int bias_row;

private:
    static constexpr bool kBias = config.bias != BiasElement::none && !config.bias_mapped;

    // Adds squares of 16 x 16, which ldmatrix leaves as the accumulators lie.
    __device__ __forceinline__ void add_shared_bias(Fragments<MT, NT>& s) const {
        static_assert(MT == 1, "");
        const int lane = static_cast<int>(lane_id());
        const unsigned own = place_in_tile<config.Br>(bias_tile, bias_row + lane % 16, lane / 16 * 8);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            unsigned square[4];
            ptx::ldmatrix(square, (own ^ n % 8 * 16) + n / 8 * config.Br * kChunkRowBytes);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float2 pair = Math<config.element>::unpack(square[k]);
                s.c[0][n + k / 2][k % 2 * 2] += pair.x;
                s.c[0][n + k / 2][k % 2 * 2 + 1] += pair.y;
            }
        }
    }

    __device__ __forceinline__ float bias_at(int m, int half, int n, int e) const {
        if constexpr (sizeof(BiasType) == 4) {
            return __uint_as_float(bias.word[m][half][2 * n + e]);
        } else {
            const float2 pair = Math<config.element>::unpack(bias.word[m][half][n]);
            return e == 0 ? pair.x : pair.y;
        }
    }

    // A member that the config does not use is never touched, and so takes no registers.
    ScoreWords<BiasType, MT, NT> bias;
    ScoreWords<unsigned char, MT, NT> mask;
};

}  // namespace flashtile
