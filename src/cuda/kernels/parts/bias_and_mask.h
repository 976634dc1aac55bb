// bias_and_mask.h: the additive bias and the boolean mask of one warp's scores, in registers as they lie in memory, so
// that they can be asked for before the product that computes the scores and be there after it. A lane holds pairs of
// neighbouring columns; where memory allows, a pair is one load.
#pragma once

#include "cuda/kernels/parts/place.h"
#include "cuda/kernels/parts/sequence.h"

namespace flashtile {

// Two neighbours as they lie in memory.
template <class T>
struct PairOf;
template <>
struct PairOf<float> {
    using Type = float2;
    __device__ static __forceinline__ Type join(float low, float high) { return make_float2(low, high); }
};
template <>
struct PairOf<unsigned short> {
    using Type = unsigned;
    __device__ static __forceinline__ Type join(unsigned low, unsigned high) { return low | high << 16; }
};
template <>
struct PairOf<unsigned char> {
    using Type = unsigned short;
    __device__ static __forceinline__ Type join(unsigned low, unsigned high) {
        return static_cast<Type>(low | high << 8);
    }
};

// This lane's pairs of a matrix that is laid over the scores.
template <class T, int MT, int NT>
struct ScorePairs {
    using Pair = typename PairOf<T>::Type;
    Pair pair[MT][NT][2];

    // Rows past the sequence's end read as the last one, columns as zero.
    __device__ __forceinline__ void load(const DeviceTensor& x, const Sequence& seq, const Place& place) {
        const T* head = static_cast<const T*>(x.data) + seq.b * x.stride_batch + seq.h * x.stride_head;
        const int j = place.j0 + Place::column(0, 0);
        const auto row_of = [&](int m, int half) {
            return head + smaller(place.i0 + Place::row(m, 2 * half), seq.seqlen_q - 1) * x.stride_row;
        };
        const bool aligned = (reinterpret_cast<unsigned long long>(head) % sizeof(Pair) == 0) && x.stride_row % 2 == 0;
        if (x.stride_col == 1 && aligned && place.j0 + NT * 8 <= seq.seqlen_k)
            each_pair([&](int m, int n, int half) {
                pair[m][n][half] = *reinterpret_cast<const Pair*>(row_of(m, half) + j + n * 8);
            });
        else
            each_pair([&](int m, int n, int half) {
                const auto at = [&](int column) {
                    return column < seq.seqlen_k ? row_of(m, half)[column * x.stride_col] : T{};
                };
                pair[m][n][half] = PairOf<T>::join(at(j + n * 8), at(j + n * 8 + 1));
            });
    }

    // Calls body(m, n, half) for every pair of this lane: that of accumulators 2 half and 2 half + 1.
    template <class Body>
    __device__ static __forceinline__ void each_pair(Body body) {
        each_score<MT, NT>([&](int m, int n, int e) {
            if (e % 2 == 0) body(m, n, e / 2);
        });
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
    using M = Math<config.element>;

    __device__ __forceinline__ void load(const KernelParams& p, const Sequence& seq, const Place& place) {
        if constexpr (kBias) bias.load(p.bias, seq, place);
        if constexpr (config.mask) mask.load(p.mask, seq, place);
    }

    // Rows past the sequence's end are hidden too; columns past it are left to the band.
    __device__ __forceinline__ void apply(Fragments<MT, NT>& s, const Sequence& seq, const Place& place) const {
        each_score<MT, NT>([&](int m, int n, int e) {
            float& x = s.c[m][n][e];
            if constexpr (kBias) {
                const float2 pair = unpack(bias.pair[m][n][e / 2]);
                x += e % 2 == 0 ? pair.x : pair.y;
            }
            if constexpr (config.mask)
                if ((mask.pair[m][n][e / 2] & (e % 2 == 0 ? 0xFF : 0xFF00)) == 0) x = -infinity();
        });
        if (place.i0 + MT * 16 > seq.seqlen_q)
            each_score<MT, NT>([&](int m, int n, int e) {
                if (place.i0 + Place::row(m, e) >= seq.seqlen_q) s.c[m][n][e] = -infinity();
            });
    }

private:
    static constexpr bool kBias = config.bias != BiasElement::none;

    __device__ static __forceinline__ float2 unpack(float2 pair) { return pair; }
    __device__ static __forceinline__ float2 unpack(unsigned pair) { return M::unpack(pair); }

    // What is not there is never touched, and so takes no registers.
    ScorePairs<typename BiasScalar<config.element, config.bias>::Type, MT, NT> bias;
    ScorePairs<unsigned char, MT, NT> mask;
};

}  // namespace flashtile
