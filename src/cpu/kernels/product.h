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

#include "cpu/isa/fp32_math.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

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

// Steps of a dot product that are summed in one chain, 32 elements: a longer one would round off more than LSE's bound
// allows.
template <class Math>
constexpr int kScoreChain = 32 / Math::kPack;

// S^T or dP^T of `rows` keys: dot products over `steps`, in such chains.
template <class Math, class Done, class Between = Nothing>
inline void dot_products(const typename Math::Scalar* a, int64_t a_row, const typename Math::Scalar* b, int64_t rows,
                         int64_t steps, Done done, Between between = {}) {
    product<Math, kScoreChain<Math>>(
        a, a_row, 1, b, kPanel, rows, steps, [](int64_t, int) { return Vec{}; }, done, between);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
