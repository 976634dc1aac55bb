// product.h: the register-tiled matrix product under every step of attention. All five products of the algorithms have
// the same shape: scalars of A are broadcast against a panel of B, and a tile of C (kRows rows x 2 vectors) stays in
// registers over the whole reduction:
//
//     C[r][lane] = sum over s of A(r, s) * B[s][lane],   A(r, s) at a + r * a_row + s * a_step
//
// With lanes = queries this gives S^T = K Q^T and dP^T = V dO^T (A is K or V as it lies: a_step = 1) and O^T = V^T P^T
// and dQ^T = K^T dS^T (the same memory: a_row = 1); with lanes = columns, dV = P^T dO and dK = dS^T Q. So neither K nor
// V is ever packed in fp32.
//
// `Math` says what a scalar of A is: Fp32Math one float and an FMA; an instruction set with a dot product of 16-bit
// pairs supplies its own, with two elements of the reduction in one scalar.
#pragma once

#include "cpu/isa/vector.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// What a task's use of an arithmetic needs set up, where it needs nothing.
struct NoSession {
    NoSession() {}
};

struct Fp32Math {
    using Session = NoSession;
    using Scalar = float;
    using Operand = Vec;
    static constexpr bool kTiles = false;
    static constexpr int kPack = 1;   // elements of the reduction in one Scalar
    static constexpr int kStep = 1;   // and in one step: operands are padded with zeros to whole steps
    static constexpr int kParts = 1;  // Scalars that hold one word of operands

    static Operand load_panel(const Scalar* b) { return load(b); }
    static Operand spread(const Scalar* a) { return broadcast(*a); }
    static Vec multiply_add(Operand a, Operand b, Vec c) { return a * b + c; }
};

#if defined(__AVX512F__)
// What arithmetics on pairs of bf16 share.
struct Bf16Pairs {
    using Scalar = uint32_t;  // two bf16, the first of them in the low half
    static constexpr int kPack = 2;
    static constexpr int kParts = 1;

    // Words of an operand; `low`: where those of the low parts go, if they have such.
    static void store_words(Scalar* dst, int64_t /*low*/, IntVec words) { memcpy(dst, &words, sizeof words); }
};

// dst[col] = the word (even[col], odd[col]), with low parts at dst[low + col]; a null row reads as zero, and so do
// columns that are missing to a whole vector.
template <class Math>
inline void interleave(const uint16_t* even, const uint16_t* odd, int64_t cols, uint32_t* dst, int64_t low) {
    for (int64_t c = 0; c < cols; c += kLanes) {
        const auto present = static_cast<__mmask16>(cols - c >= kLanes ? 0xFFFF : (1 << (cols - c)) - 1);
        const auto sixteen = [&](const uint16_t* row) {
            if (row == nullptr) return IntVec{};
            return reinterpret_cast<IntVec>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(present, row + c)));
        };
        Math::store_words(dst + c, low, sixteen(even) | sixteen(odd) << 16);
    }
}
#endif

#if defined(__AVX512BF16__)
struct Bf16Math : Bf16Pairs {
    using Session = NoSession;
    using Operand = __m512bh;
    static constexpr bool kTiles = false;
    static constexpr int kStep = 2;
    static constexpr int64_t kPartner = 1;  // a row of queries pairs each with that many further on

    static Operand load_panel(const Scalar* b) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(b)); }
    static Operand spread(const Scalar* a) {
        int32_t pair;
        memcpy(&pair, a, sizeof pair);  // the pairs of a row of K lie at any even address
        return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
    }
    static Vec multiply_add(Operand a, Operand b, Vec c) { return _mm512_dpbf16_ps(c, a, b); }

    // dst[lane] = the pair (even[lane], odd[lane]), rounded to bf16.
    static void store_pair(Scalar* dst, Vec even, Vec odd) {
        const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                               6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        const __m512i halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
        _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(order, halves));
    }

    // dst = the 2 kLanes elements of a, then b, rounded to bf16, in order.
    static void store_row(Scalar* dst, Vec a, Vec b) {
        _mm512_storeu_si512(dst, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
    }
};
#endif

// Rows of C in registers: 8 x 2 of 32 registers, 6 x 2 of 16.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRows = 8;
#else
constexpr int kRows = 6;
#endif

// `kChain`, where not 0, is the most steps that are summed in one chain of roundings; longer sums are made of such
// parts.
template <int R, class Math, int kChain, class Init, class Done>
[[gnu::always_inline]] inline void product_tile(const typename Math::Scalar* a, int64_t a_row, int64_t a_step,
                                                const typename Math::Scalar* b, int64_t b_step, int64_t steps,
                                                Init init, Done done) {
    Vec c[R][2];
    FLASHTILE_UNROLL
    for (int r = 0; r < R; ++r) {
        c[r][0] = init(r, 0);
        c[r][1] = init(r, 1);
    }
    const auto sum = [&](int64_t count) __attribute__((always_inline)) {
        for (int64_t s = 0; s < count; ++s) {
            const auto b0 = Math::load_panel(b);
            const auto b1 = Math::load_panel(b + kLanes);
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r) {
                const auto x = Math::spread(a + r * a_row);
                c[r][0] = Math::multiply_add(x, b0, c[r][0]);
                c[r][1] = Math::multiply_add(x, b1, c[r][1]);
            }
            a += a_step;
            b += b_step;
        }
    };
    if constexpr (kChain == 0) {
        sum(steps);
    } else {
        Vec parts[R][2] = {};
        for (; steps > kChain; steps -= kChain) {
            sum(kChain);
            FLASHTILE_UNROLL
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < 2; ++v) {
                    parts[r][v] += c[r][v];
                    c[r][v] = Vec{};
                }
        }
        sum(steps);
        FLASHTILE_UNROLL
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < 2; ++v) c[r][v] += parts[r][v];
    }
    FLASHTILE_UNROLL
    for (int r = 0; r < R; ++r) done(r, c[r][0], c[r][1]);
}

// Keys of a forward block (Bc), and keys and queries of a backward tile (Bc, Br). The tiles that they make of d <= 128
// stay within a level-2 cache, those of one panel within a level-1 cache.
constexpr int64_t kForwardKeys = 128;
constexpr int64_t kBackwardKeys = 128;
constexpr int64_t kBackwardQueries = 128;
constexpr int64_t kManyBackwardQueries = 256;  // on tiles, of longer sequences: see tile_choice.h

// All rows: init(r, v) gives where row r, vector v starts from; done(r, c0, c1) takes the finished row. Each row's sums
// run over s in order whatever tile it falls in, so a row's bits do not depend on its neighbours. between() runs after
// each tile, when no accumulator is live.
struct Nothing {
    template <class... Ignored>
    void operator()(Ignored...) const {}
};
template <class Math, int kChain = 0, class Init, class Done, class Between = Nothing>
inline void product(const typename Math::Scalar* a, int64_t a_row, int64_t a_step, const typename Math::Scalar* b,
                    int64_t b_step, int64_t rows, int64_t steps, Init init, Done done, Between between = {}) {
    int64_t r0 = 0;
    const auto tile = [&]<int R>() {
        product_tile<R, Math, kChain>(
            a + r0 * a_row, a_row, a_step, b, b_step,
            steps, [&](int r, int v) __attribute__((always_inline)) { return init(r0 + r, v); },
            [&](int r, Vec c0, Vec c1) __attribute__((always_inline)) { done(r0 + r, c0, c1); });
        r0 += R;
        between();
    };
    while (r0 + kRows <= rows) tile.template operator()<kRows>();
    if (r0 + 4 <= rows) tile.template operator()<4>();
    if (r0 + 2 <= rows) tile.template operator()<2>();
    if (r0 + 1 <= rows) tile.template operator()<1>();
}

// S^T or dP^T of `rows` keys: dot products over `steps`, in chains of 32 elements: a longer one would round off more
// than LSE's bound allows.
template <class Math, class Done, class Between = Nothing>
inline void dot_products(const typename Math::Scalar* a, int64_t a_row, const typename Math::Scalar* b, int64_t rows,
                         int64_t steps, Done done, Between between = {}) {
    product<Math, 32 / Math::kPack>(
        a, a_row, 1, b, kPanel, rows, steps, [](int64_t, int) { return Vec{}; }, done, between);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
