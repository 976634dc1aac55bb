// element.h: the types that tensors have in memory, and the tile product of each: C += A B for one warp, with A and B
// in shared memory or A in registers. All products leave C in the accumulator fragments of mma m16n8: lane = 4 g + t
// holds c[0], c[1] of row g and c[2], c[3] of row g + 8, in columns 2 t and 2 t + 1.
#pragma once

#include "cuda/kernels/ptx/convert.h"
#include "cuda/kernels/ptx/ldmatrix.h"
#include "cuda/kernels/ptx/mma.h"
#include "shared/kernel_layout.h"

namespace flashtile {

constexpr unsigned kLanes = 32;

__device__ __forceinline__ unsigned lane_id() {
    return threadIdx.x % kLanes;
}
__device__ __forceinline__ unsigned warp_id() {
    return threadIdx.x / kLanes;
}

// Which rows of B a product takes: here, all of them. masks(n) gives rows 16 n to 16 n + 15 as masks for registers of
// two values, row(n) says it of one row, and eight(n) gives rows 8 n to 8 n + 7 as bits.
struct KeepAll {
    __device__ static __forceinline__ uint2 masks(int) { return make_uint2(~0u, ~0u); }
    __device__ static __forceinline__ bool row(int) { return true; }
    __device__ static __forceinline__ unsigned eight(int) { return ~0u; }
};

// How a tile in shared memory is read: as it lies, or with rows and columns exchanged.
enum class Read { as_stored, transposed };

// Accumulators of a (16 MT) x (8 NT) tile.
template <int MT, int NT>
struct Fragments {
    float c[MT][NT][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) c[m][n][e] = 0.0f;
    }

    __device__ __forceinline__ void add(const Fragments& other) {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) c[m][n][e] += other.c[m][n][e];
    }
};

// The 16-bit types: ldmatrix and mma.
template <Element kElement>
struct Math {
    using Scalar = unsigned short;
    static constexpr int kStep = 16;  // of the inner dimension
    // mma truncates what it adds up. Past so many columns LSE would show that, and so sums are taken in parts.
    static constexpr int kChain = 128;

    __device__ static __forceinline__ unsigned pack(float low, float high) {
        if constexpr (kElement == Element::bf16)
            return ptx::pack_bf16(low, high);
        else
            return ptx::pack_fp16(low, high);
    }
    __device__ static __forceinline__ float to_float(Scalar x) {
        if constexpr (kElement == Element::bf16)
            return ptx::unpack_bf16(x);
        else
            return ptx::unpack_fp16(x);
    }
    __device__ static __forceinline__ Scalar from_float(float x) { return static_cast<Scalar>(pack(x, 0.0f)); }

    __device__ static __forceinline__ float2 unpack(unsigned pair) {
        return make_float2(to_float(static_cast<Scalar>(pair & 0xFFFF)), to_float(static_cast<Scalar>(pair >> 16)));
    }

    // Two neighbours in a row.
    __device__ static __forceinline__ void store_pair(Scalar* to, float low, float high) {
        *reinterpret_cast<unsigned*>(to) = pack(low, high);
    }

    // C += A B, or C = A B.
    __device__ static __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                                    bool fresh = false) {
        if constexpr (kElement == Element::bf16) {
            if (fresh)
                ptx::mma_bf16_fresh(c, a, b0, b1);
            else
                ptx::mma_bf16(c, a, b0, b1);
        } else {
            if (fresh)
                ptx::mma_fp16_fresh(c, a, b0, b1);
            else
                ptx::mma_fp16(c, a, b0, b1);
        }
    }

    // A fragments of P, which has just been an accumulator: the layouts agree.
    template <int MT, int NT>
    struct Left {
        static_assert(NT % 2 == 0, "");
        unsigned a[MT][NT / 2][4];
    };
    template <int MT, int NT>
    __device__ static __forceinline__ Left<MT, NT> left_of(const Fragments<MT, NT>& p) {
        Left<MT, NT> left;
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int k = 0; k < NT / 2; ++k) {
                left.a[m][k][0] = pack(p.c[m][2 * k][0], p.c[m][2 * k][1]);
                left.a[m][k][1] = pack(p.c[m][2 * k][2], p.c[m][2 * k][3]);
                left.a[m][k][2] = pack(p.c[m][2 * k + 1][0], p.c[m][2 * k + 1][1]);
                left.a[m][k][3] = pack(p.c[m][2 * k + 1][2], p.c[m][2 * k + 1][3]);
            }
        return left;
    }

    // C += A B, A [16 MT][K] and B [K][8 NT]. `a` and `b` are the tiles' corners; a transposed read of A finds A[m][k]
    // at row k, column m; B as stored lies [n][k] (keys are rows), transposed [k][n]. `keep.masks(n)` covers the
    // registers that hold rows 16 n + 2 t, 16 n + 2 t + 1 and the same plus 8 of B; what it hides reads as zero.
    // kFresh: C = A B.
    template <int K, int kPitchA, Read kReadA, int kPitchB, Read kReadB, bool kFresh = false, int MT, int NT,
              class Keep = KeepAll>
    __device__ static __forceinline__ void product(Fragments<MT, NT>& c, const Scalar* a, const Scalar* b,
                                                   const Keep& keep = {}) {
        static_assert(NT % 2 == 0 && K % kStep == 0, "");
        const unsigned from_a = address_a<kPitchA, kReadA>(a), from_b = address_b<kPitchB, kReadB>(b);
        // The next two pairs of columns are loaded while one is multiplied.
        constexpr int kPairs = NT / 2, kAll = K / kStep * kPairs, kAhead = kPairs < 2 ? 1 : 2;
        unsigned left[2][MT][4], right[kAhead + 1][4];
        const auto load = [&](int pair) {
            if (pair >= kAll) return;
            if (pair % kPairs == 0) load_a<kPitchA, kReadA>(left[pair / kPairs % 2], from_a, pair / kPairs * kStep);
            load_b<kPitchB, kReadB>(right[pair % (kAhead + 1)], from_b, pair / kPairs * kStep, pair % kPairs * 2);
        };
#pragma unroll
        for (int pair = 0; pair < kAhead; ++pair) load(pair);
#pragma unroll
        for (int pair = 0; pair < kAll; ++pair) {
            load(pair + kAhead);
            const int k = pair / kPairs, n = pair % kPairs * 2;
            const uint2 mask = keep.masks(k);
            const auto& b_now = right[pair % (kAhead + 1)];
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                multiply(c.c[m][n], left[k % 2][m], b_now[0] & mask.x, b_now[1] & mask.y, kFresh && k == 0);
                multiply(c.c[m][n + 1], left[k % 2][m], b_now[2] & mask.x, b_now[3] & mask.y, kFresh && k == 0);
            }
        }
    }

    // C += P B with P in registers, B [K][8 NT] stored as rows of K.
    template <int kPitchB, int MT, int KT, int NT, class Keep>
    __device__ static __forceinline__ void product_from_registers(Fragments<MT, NT>& c, const Left<MT, KT>& p,
                                                                  const Scalar* b, const Keep& keep) {
        const unsigned from_b = address_b<kPitchB, Read::transposed>(b);
        constexpr int kPairs = NT / 2, kAll = KT / 2 * kPairs, kAhead = 2;
        unsigned right[kAhead + 1][4];
        const auto load = [&](int pair) {
            if (pair < kAll)
                load_b<kPitchB, Read::transposed>(right[pair % (kAhead + 1)], from_b, pair / kPairs * kStep,
                                                  pair % kPairs * 2);
        };
#pragma unroll
        for (int pair = 0; pair < kAhead; ++pair) load(pair);
#pragma unroll
        for (int pair = 0; pair < kAll; ++pair) {
            load(pair + kAhead);
            const int k = pair / kPairs, n = pair % kPairs * 2;
            const uint2 mask = keep.masks(k);
            const auto& now = right[pair % (kAhead + 1)];
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                multiply(c.c[m][n], p.a[m][k], now[0] & mask.x, now[1] & mask.y);
                multiply(c.c[m][n + 1], p.a[m][k], now[2] & mask.x, now[3] & mask.y);
            }
        }
    }

private:
    __device__ static __forceinline__ unsigned shared_address(const Scalar* p) {
        return static_cast<unsigned>(__cvta_generic_to_shared(p));
    }

    // Where this lane's ldmatrix row starts. The four matrices of A come in the order (rows 0-7, k 0-7), (rows 8-15,
    // k 0-7), (rows 0-7, k 8-15), (rows 8-15, k 8-15).
    template <int kPitch, Read kRead>
    __device__ static __forceinline__ unsigned address_a(const Scalar* a) {
        const unsigned lane = lane_id();
        const unsigned first = kRead == Read::as_stored ? lane % 16 : lane % 8 + lane / 16 * 8;
        const unsigned second = kRead == Read::as_stored ? lane / 16 * 8 : lane / 8 % 2 * 8;
        return shared_address(a) + (first * kPitch + second) * 2;
    }

    // The four matrices of B come in the order (n 0-7, k 0-7), (n 0-7, k 8-15), (n 8-15, k 0-7), (n 8-15, k 8-15).
    template <int kPitch, Read kRead>
    __device__ static __forceinline__ unsigned address_b(const Scalar* b) {
        const unsigned lane = lane_id();
        const unsigned first = kRead == Read::as_stored ? lane % 8 + lane / 16 * 8 : lane % 16;
        const unsigned second = kRead == Read::as_stored ? lane / 8 % 2 * 8 : lane / 16 * 8;
        return shared_address(b) + (first * kPitch + second) * 2;
    }

    template <int kPitch, Read kRead, int MT>
    __device__ static __forceinline__ void load_a(unsigned (&r)[MT][4], unsigned from, int k) {
#pragma unroll
        for (int m = 0; m < MT; ++m) {
            if constexpr (kRead == Read::as_stored)
                ptx::ldmatrix(r[m], from + (m * 16 * kPitch + k) * 2);
            else
                ptx::ldmatrix_trans(r[m], from + (k * kPitch + m * 16) * 2);
        }
    }

    template <int kPitch, Read kRead>
    __device__ static __forceinline__ void load_b(unsigned (&r)[4], unsigned from, int k, int n) {
        if constexpr (kRead == Read::as_stored)
            ptx::ldmatrix(r, from + (n * 8 * kPitch + k) * 2);
        else
            ptx::ldmatrix_trans(r, from + (k * kPitch + n * 8) * 2);
    }
};

// e4m3, of which Hopper's products take 32 of the inner dimension at a time (wgmma_product.h).
template <>
struct Math<Element::e4m3> {
    using Scalar = unsigned char;

    // A fragments of P. A lane's accumulators are of columns 2 t, 2 t + 1, 8 + 2 t and 9 + 2 t of each 16, while a lane
    // of A has four neighbours: the product takes keys in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, as V has
    // them (transposed_values.h).
    template <int MT, int NT>
    struct Left {
        static_assert(NT % 4 == 0, "");
        unsigned a[MT][NT / 4][4];
    };
    template <int MT, int NT>
    __device__ static __forceinline__ Left<MT, NT> left_of(const Fragments<MT, NT>& p) {
        Left<MT, NT> left;
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int k = 0; k < NT / 2; ++k)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float *x = &p.c[m][2 * k][2 * half], *y = &p.c[m][2 * k + 1][2 * half];
                    left.a[m][k / 2][k % 2 * 2 + half] = ptx::pack_e4m3(x[0], x[1], y[0], y[1]);
                }
        return left;
    }
};

// fp32: plain FMAs on the same fragments, since tensor cores would round the factors to 11 bits.
template <>
struct Math<Element::fp32> {
    using Scalar = float;
    static constexpr int kStep = 8;

    __device__ static __forceinline__ float to_float(float x) { return x; }
    __device__ static __forceinline__ float from_float(float x) { return x; }
    __device__ static __forceinline__ void store_pair(float* to, float low, float high) {
        *reinterpret_cast<float2*>(to) = make_float2(low, high);
    }

    template <int MT, int NT>
    using Left = Fragments<MT, NT>;
    template <int MT, int NT>
    __device__ static __forceinline__ const Fragments<MT, NT>& left_of(const Fragments<MT, NT>& p) {
        return p;
    }

    // A sum is made of partial sums of at most kSum products, so that its error grows with K / kSum + kSum and not with
    // K.
    static constexpr int kSum = 16;
    static constexpr int kChain = 1 << 30;  // product takes sums in parts by itself

    template <int K, int kPitchA, Read kReadA, int kPitchB, Read kReadB, bool kFresh = false, int MT, int NT,
              class Keep = KeepAll>
    __device__ static __forceinline__ void product(Fragments<MT, NT>& c, const float* a, const float* b,
                                                   const Keep& keep = {}) {
        const unsigned g = lane_id() / 4, t = lane_id() % 4;
        const auto left = [&](int row, int k) {
            return kReadA == Read::as_stored ? a[row * kPitchA + k] : a[k * kPitchA + row];
        };
        const auto right = [&](int k, int column) {
            return kReadB == Read::as_stored ? b[column * kPitchB + k] : b[k * kPitchB + column];
        };
        const auto add_products = [&](Fragments<MT, NT>& sum, int first, int end) {
#pragma unroll 4
            for (int k = first; k < end; ++k) {
                float x[MT][2];
#pragma unroll
                for (int m = 0; m < MT; ++m)
#pragma unroll
                    for (int half = 0; half < 2; ++half) x[m][half] = left(m * 16 + half * 8 + g, k);
                const bool kept = keep.row(k);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    const float y0 = kept ? right(k, n * 8 + 2 * t) : 0.0f;
                    const float y1 = kept ? right(k, n * 8 + 2 * t + 1) : 0.0f;
#pragma unroll
                    for (int m = 0; m < MT; ++m) add(sum.c[m][n], x[m][0], x[m][1], y0, y1);
                }
            }
        };
        if constexpr (kFresh) c.clear();
        if constexpr (kFresh && K <= 2 * kSum) {  // there is no second sum beside C, since dQ has no registers for both
            add_products(c, 0, K);
        } else {
#pragma unroll 1
            for (int chain = 0; chain < K; chain += kSum) {
                Fragments<MT, NT> sum;
                sum.clear();
                add_products(sum, chain, chain + kSum < K ? chain + kSum : K);
                c.add(sum);
            }
        }
    }

    template <int kPitchB, int MT, int KT, int NT, class Keep>
    __device__ static __forceinline__ void product_from_registers(Fragments<MT, NT>& c, const Fragments<MT, KT>& p,
                                                                  const float* b, const Keep& keep) {
        const unsigned t = lane_id() % 4, quad = lane_id() & ~3u;
        Fragments<MT, NT> sum;
        sum.clear();
#pragma unroll
        for (int tile = 0; tile < KT; ++tile) {
            const unsigned kept_rows = keep.eight(tile);
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                float x[MT][2];
#pragma unroll
                for (int m = 0; m < MT; ++m)
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        x[m][half] = __shfl_sync(~0u, p.c[m][tile][k % 2 + 2 * half], quad + k / 2);
                if ((kept_rows >> k & 1) == 0) continue;  // P is zero there, and V may be anything
                const float* row = b + (tile * 8 + k) * kPitchB + 2 * t;
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    const float2 y = *reinterpret_cast<const float2*>(row + n * 8);
#pragma unroll
                    for (int m = 0; m < MT; ++m) add(sum.c[m][n], x[m][0], x[m][1], y.x, y.y);
                }
            }
        }
        c.add(sum);
    }

private:
    __device__ static __forceinline__ void add(float (&c)[4], float x0, float x1, float y0, float y1) {
        c[0] = fmaf(x0, y0, c[0]);
        c[1] = fmaf(x0, y1, c[1]);
        c[2] = fmaf(x1, y0, c[2]);
        c[3] = fmaf(x1, y1, c[3]);
    }
};

// S = A B^T, both with K columns. Sums over more than M::kChain columns are taken in parts.
template <class M, int K, int kPitchA, int kPitchB, int MT, int NT>
__device__ __forceinline__ void dot_products(Fragments<MT, NT>& s, const typename M::Scalar* a,
                                             const typename M::Scalar* b) {
    constexpr int kFirst = K < M::kChain ? K : M::kChain;
    M::template product<kFirst, kPitchA, Read::as_stored, kPitchB, Read::as_stored, true>(s, a, b);
    if constexpr (K > kFirst) {
        Fragments<MT, NT> rest;
        dot_products<M, K - kFirst, kPitchA, kPitchB>(rest, a + kFirst, b + kFirst);
        s.add(rest);
    }
}

}  // namespace flashtile
