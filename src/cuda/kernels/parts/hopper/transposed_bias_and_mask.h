// transposed_bias_and_mask.h: the additive bias and the boolean mask where a warp holds S^T: its 16 rows are keys, and
// the columns are queries. In memory keys are neighbours, so that they come by rows of 16 keys and are then exchanged.
#pragma once

#include "cuda/kernels/parts/common/bias_and_mask.h"
#include "cuda/kernels/parts/hopper/sequence_edges.h"

namespace flashtile {

// Where this warp's first key and first query lie in a tensor that is laid over the scores.
template <class T>
__device__ __forceinline__ const T* score_place(const DeviceTensor& x, const Sequence& seq, const Place& place) {
    return static_cast<const T*>(x.data) + seq.b * x.stride_batch + seq.h * x.stride_head + place.j0 * x.stride_row +
           place.i0 * x.stride_col;
}

// Which scores a boolean mask keeps. place.i0 is the first key, place.j0 the first query.
template <int NT>
struct MaskTransposed {
    static constexpr int kParts = NT / 4;  // of 32 queries; a lane loads the 16 keys of one of them
    static_assert(kParts % 2 == 0, "");

    uint4 bytes[kParts];
    // A bit for each of this lane's scores. Of 64 queries a byte has the first 32 at the lane's first key, the next one
    // those at its second key, and then the other 32.
    unsigned kept[kParts / 2];

    // Starts loading, if rows can be loaded whole. Queries past the sequence's end read as its last one.
    __device__ __forceinline__ void load(const DeviceTensor& x, const Sequence& seq, const Place& place) {
        if (!comes_whole(x, seq, place)) return;
#pragma unroll
        for (int n = 0; n < kParts; ++n) bytes[n] = *reinterpret_cast<const uint4*>(row_of(x, seq, place, n));
    }

    // Waits for what was loaded, or gathers it byte by byte. Keys past the sequence's end read as hidden. kLoaded:
    // load() was called.
    template <bool kLoaded>
    __device__ __forceinline__ void condense(const DeviceTensor& x, const Sequence& seq, const Place& place) {
        if constexpr (!kLoaded) load(x, seq, place);
        if (!comes_whole(x, seq, place))
#pragma unroll
            for (int n = 0; n < kParts; ++n)
                bytes[n] = gathered(row_of(x, seq, place, n), x.stride_col, seq.seqlen_k - place.i0);
#pragma unroll
        for (int n = 0; n < kParts / 2; ++n) {
            const unsigned keys = bits_of(bytes[2 * n]) | bits_of(bytes[2 * n + 1]) << 16;
            kept[n] = 0;
#pragma unroll
            for (int bit = 0; bit < 8; ++bit) {
                const unsigned query = bit / 2 * 8 + lane_id() % 4 * 2 + bit % 2;
                kept[n] += (__shfl_sync(~0u, keys, query) >> lane_id() / 4 & 0x01010101) << bit;
            }
        }
    }

    __device__ __forceinline__ void apply(Fragments<1, NT>& s) const {
        each_score<1, NT>([&](int m, int n, int e) {
            const int bit = n % 4 * 2 + e % 2 + n % 8 / 4 * 16 + e / 2 * 8;
            if ((kept[n / 8] & 1u << bit) == 0) s.c[m][n][e] = -infinity();
        });
    }

private:
    __device__ static __forceinline__ bool comes_whole(const DeviceTensor& x, const Sequence& seq, const Place& place) {
        return x.stride_col == 1 && place.i0 + 16 <= seq.seqlen_k && x.stride_row % 16 == 0 &&
               reinterpret_cast<unsigned long long>(score_place<unsigned char>(x, seq, place)) % 16 == 0;
    }
    __device__ static __forceinline__ const unsigned char* row_of(const DeviceTensor& x, const Sequence& seq,
                                                                  const Place& place, int part) {
        const int query = smaller(part * 32 + static_cast<int>(lane_id()), seq.seqlen_q - 1 - place.j0);
        return score_place<unsigned char>(x, seq, place) + query * x.stride_row;
    }
    __device__ static __forceinline__ uint4 gathered(const unsigned char* from, Index stride, int count) {
        unsigned words[4] = {};
#pragma unroll
        for (int k = 0; k < 16; ++k, from += stride)  // multiples of the stride would stay in registers
            if (k < count) words[k / 4] |= static_cast<unsigned>(*from) << k % 4 * 8;
        return make_uint4(words[0], words[1], words[2], words[3]);
    }

    // The top bit of each byte that is not zero.
    __device__ static __forceinline__ unsigned tops(unsigned word) {
        constexpr unsigned kLow = 0x7F7F7F7F;
        return ((word & kLow) + kLow | word) & ~kLow;
    }
    // Bit k is byte k's. A product with powers of two adds four bytes up, each with a weight of its own.
    __device__ static __forceinline__ unsigned bits_of(const uint4& x) {
        constexpr unsigned kFirst = 0x08040201, kSecond = 0x80402010;
        const unsigned low = __dp4a(tops(x.y), kSecond, __dp4a(tops(x.x), kFirst, 0u));
        const unsigned high = __dp4a(tops(x.w), kSecond, __dp4a(tops(x.z), kFirst, 0u));
        return low >> 7 | high << 1;
    }
};

// Whether a tile of 16-bit values has no NaN and no infinity, of the part that this thread of two consumers looks at.
template <Element kElement, int kBytes>
__device__ __forceinline__ bool tile_is_finite(unsigned tile) {
    constexpr unsigned kInfinity = kElement == Element::bf16 ? 0x7F80 : 0x7C00, kBoth = 0x10001;
    unsigned reached = 0;  // the top bit of a half that is infinity or more
    for (int n = static_cast<int>(threadIdx.x) * 16; n < kBytes; n += barriers::kTwoWarpgroups * 16) {
        const uint4 x = ptx::load_shared(tile + n);
        const unsigned words[] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) reached |= (words[w] & 0x7FFF * kBoth) + (0x8000 - kInfinity) * kBoth;
    }
    return (reached & 0x8000 * kBoth) == 0;
}

// Adds a bias that lies in shared memory: a tile of kRows queries, whose columns are keys. Of squares of 16 x 16
// ldmatrix leaves the transposes as the accumulators lie.
template <Element kElement, int kRows, int NT>
__device__ __forceinline__ void add_shared_bias_transposed(Fragments<1, NT>& s, unsigned tile, int warp_row) {
    const int lane = static_cast<int>(lane_id());
    const unsigned own = place_in_tile<kRows>(tile, lane % 8 + lane / 16 * 8, warp_row + lane / 8 % 2 * 8);
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
        unsigned square[4];
        ptx::ldmatrix_trans(square, own + n * 8 * kChunkRowBytes);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float2 pair = Math<kElement>::unpack(square[k]);
            s.c[0][n + k / 2][k % 2 * 2] += pair.x;
            s.c[0][n + k / 2][k % 2 * 2 + 1] += pair.y;
        }
    }
}

// A warp clears a row of a tile.
template <int kTileRows, int kColumns>
__device__ __forceinline__ void clear_row(unsigned tile, int row) {
    for (int column = static_cast<int>(lane_id()) * 8; column < kColumns; column += 32 * 8)
        ptx::store_shared(place_in_tile<kTileRows>(tile, row, column), make_uint4(0, 0, 0, 0));
}

template <KernelConfig config>
using BiasType = typename BiasScalar<config.element, config.bias>::Type;
template <KernelConfig config>
__device__ __forceinline__ float bias_value(BiasType<config> x) {
    if constexpr (config.bias == BiasElement::fp32)
        return x;
    else
        return Math<config.element>::to_float(x);
}

// Adds a bias of any strides, element by element.
template <KernelConfig config, int NT>
__device__ __forceinline__ void add_bias_transposed(Fragments<1, NT>& s, const DeviceTensor& x, const Sequence& seq,
                                                    const Place& place) {
    const auto* const first =
        score_place<BiasType<config>>(x, seq, {place.i0 + Place::row(0, 0), place.j0 + Place::column(0, 0)});
    const int queries = seq.seqlen_q - place.j0 - Place::column(0, 0),
              keys = seq.seqlen_k - place.i0 - Place::row(0, 0);
    each_score<1, NT>([&](int m, int n, int e) {
        const int query = n * 8 + e % 2, key = e / 2 * 8;
        if (query >= queries || key >= keys) return;
        s.c[m][n][e] += bias_value<config>(first[query * x.stride_row + key * x.stride_col]);
    });
}

}  // namespace flashtile
