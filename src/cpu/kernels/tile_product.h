// tile_product.h: the products of attention on the tile unit of AMX. A tile of C is 16 x 16 of fp32; one instruction
// adds to it over 32 elements of the reduction. S^T = K Q^T reads K's rows as they were copied and Q^T in pairs; O^T =
// V^T P^T reads V^T in tiles, packed once a block, and P^T in pairs. Both write the same transposed tiles as product.h
// does. Where operands have two parts (tile_math.h), the products of parts are added into one tile of C.
#pragma once

#include "cpu/isa/tile_math.h"
#include "cpu/kernels/product.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Which of a panel's two vectors a product of tiles was for. The work between products is told this.
template <int kHalf>
struct Half {};

// Computes the two tiles of 16 rows of C, in registers kC and kC + 1. `meanwhile` is called after the first step; it
// does what has to wait for the products before these.
template <int kC, bool kAdd, Parts kParts, class Along, class Meanwhile>
[[gnu::always_inline]] inline void tile_pair(const uint32_t* a, const TileLayout& layout, const uint32_t* b,
                                             int64_t b_step, int64_t steps, float* c, int64_t c_step, Along& along,
                                             Meanwhile meanwhile) {
    constexpr int kA = 4 + kC / 2;
    constexpr int64_t kRowsOfB = kParts == Parts::high ? 1 : 2;
    const int64_t a_row = layout.row * 4, b_row = kRowsOfB * b_step * 4, c_row = c_step * 4;
    if constexpr (kAdd) {
        tile_load<kC>(c, c_row);
        tile_load<kC + 1>(c + kLanes, c_row);
    } else {
        tile_zero<kC>();
        tile_zero<kC + 1>();
    }
    // An operand that is not loaded is still in its register from the product before.
    const auto multiply = [&]<bool kLoadA, bool kLoadB>(const uint32_t* x, const uint32_t* y)
        __attribute__((always_inline)) {
        if constexpr (kLoadA) tile_stream<kA>(x, a_row);
        if constexpr (kLoadB) tile_load<6>(y, b_row);
        tile_multiply_add<kC, kA, 6>();
        along(Half<0>{});
        if constexpr (kLoadB) tile_load<7>(y + kLanes, b_row);
        tile_multiply_add<kC + 1, kA, 7>();
        along(Half<1>{});
    };
    for (int64_t s = 0; s < steps; ++s, a += layout.step, b += kTileRows * kRowsOfB * b_step) {
        if constexpr (kParts == Parts::high) {
            multiply.template operator()<true, true>(a, b);
        } else {
            const uint32_t *const a_low = a + layout.low, *const b_low = b + b_step;
            if constexpr (kParts == Parts::all) multiply.template operator()<true, true>(a_low, b_low);
            multiply.template operator()<kParts != Parts::all, true>(a_low, b);
            multiply.template operator()<true, false>(a, b);
            multiply.template operator()<false, true>(a, b_low);
        }
        if (s == 0) meanwhile();
    }
}

// C = A B, or C += A B, where B and C are kPanel wide, rows of B are b_step words apart, low parts after high ones, and
// `rows` rows of C, in memory a multiple of 16, c_step floats. Other work is called in between: along() after each
// product of tiles; before_store(end), where whole tiles end, and after_store(first) around stores. Sixteen rows go to
// memory while the next are multiplied: a store waits for its products.
template <bool kAdd, Parts kParts, class Along = Nothing, class BeforeStore = Nothing, class AfterStore = Nothing>
[[gnu::always_inline]] inline void tile_product(const uint32_t* a, const TileLayout& layout, const uint32_t* b,
                                                int64_t b_step, int64_t rows, int64_t steps, float* c, int64_t c_step,
                                                Along along = {}, BeforeStore before_store = {},
                                                AfterStore after_store = {}) {
    const int64_t c_row = c_step * 4, c_group = kTileRows * c_step;
    const auto store_pair = [&]<int kC>(int64_t r0, float* to) __attribute__((always_inline)) {
        before_store(r0 + kTileRows);
        tile_store<kC>(to, c_row);
        tile_store<kC + 1>(to + kLanes, c_row);
        after_store(r0);
    };
    int64_t r0 = 0;
    for (; r0 < rows; r0 += 2 * kTileRows, a += 2 * layout.group, c += 2 * c_group) {
        const auto store_last = [&]() __attribute__((always_inline)) {
            if (r0 > 0) store_pair.template operator()<2>(r0 - kTileRows, c - c_group);
        };
        const auto store_first = [&]() __attribute__((always_inline)) {
            store_pair.template operator()<0>(r0, c);
        };
        tile_pair<0, kAdd, kParts>(a, layout, b, b_step, steps, c, c_step, along, store_last);
        if (r0 + kTileRows >= rows) return store_first();
        tile_pair<2, kAdd, kParts>(a + layout.group, layout, b, b_step, steps, c + c_group, c_step, along, store_first);
    }
    if (r0 > 0) store_pair.template operator()<2>(r0 - kTileRows, c - c_group);
}

// The same in squares of two tiles by two, so that a tile of B is loaded once for two tiles of A. It multiplies high
// parts only.
template <bool kAdd, class Along, class BeforeStore = Nothing, class AfterStore = Nothing>
[[gnu::always_inline]] inline void tile_product_in_squares(const uint32_t* a, const TileLayout& layout,
                                                           const uint32_t* b, int64_t b_step, int64_t rows,
                                                           int64_t steps, float* c, int64_t c_step, Along along,
                                                           BeforeStore before_store = {}, AfterStore after_store = {}) {
    const int64_t a_row = layout.row * 4, b_row = b_step * 4, c_row = c_step * 4;
    const int64_t c_group = kTileRows * c_step;
    int64_t r0 = 0;
    for (; r0 + kTileRows < rows; r0 += 2 * kTileRows, a += 2 * layout.group, c += 2 * c_group) {
        if constexpr (kAdd) {
            tile_load<0>(c, c_row);
            tile_load<1>(c + kLanes, c_row);
            tile_load<2>(c + c_group, c_row);
            tile_load<3>(c + c_group + kLanes, c_row);
        } else {
            tile_zero<0>();
            tile_zero<1>();
            tile_zero<2>();
            tile_zero<3>();
        }
        const uint32_t *x = a, *y = b;
        for (int64_t s = 0; s < steps; ++s, x += layout.step, y += kTileRows * b_step) {
            tile_stream<4>(x, a_row);
            tile_load<6>(y, b_row);
            tile_multiply_add<0, 4, 6>();
            along(Half<0>{});
            tile_load<7>(y + kLanes, b_row);
            tile_multiply_add<1, 4, 7>();
            along(Half<1>{});
            tile_stream<5>(x + layout.group, a_row);
            tile_multiply_add<2, 5, 6>();
            along(Half<0>{});
            tile_multiply_add<3, 5, 7>();
            along(Half<1>{});
        }
        before_store(r0 + 2 * kTileRows);
        tile_store<0>(c, c_row);
        tile_store<1>(c + kLanes, c_row);
        tile_store<2>(c + c_group, c_row);
        tile_store<3>(c + c_group + kLanes, c_row);
        after_store(r0);
        after_store(r0 + kTileRows);
    }
    if (r0 >= rows) return;
    tile_pair<0, kAdd, Parts::high>(a, layout, b, b_step, steps, c, c_step, along, Nothing{});
    before_store(r0 + kTileRows);
    tile_store<0>(c, c_row);
    tile_store<1>(c + kLanes, c_row);
    after_store(r0);
}

// C = A B where the reduction has two steps, so that B stays in registers. It multiplies high parts only.
template <class Along, class BeforeStore, class AfterStore>
[[gnu::always_inline]] inline void tile_product_of_two_steps(const uint32_t* a, const TileLayout& layout,
                                                             const uint32_t* b, int64_t b_step, int64_t rows, float* c,
                                                             int64_t c_step, Along along, BeforeStore before_store,
                                                             AfterStore after_store) {
    const int64_t a_row = layout.row * 4, b_row = b_step * 4, c_row = c_step * 4;
    tile_load<4>(b, b_row);
    tile_load<5>(b + kLanes, b_row);
    tile_load<6>(b + kTileRows * b_step, b_row);
    tile_load<7>(b + kTileRows * b_step + kLanes, b_row);
    for (int64_t r0 = 0; r0 < rows; r0 += kTileRows, a += layout.group, c += kTileRows * c_step) {
        tile_zero<0>();
        tile_zero<1>();
        tile_stream<2>(a, a_row);
        tile_multiply_add<0, 2, 4>();
        along(Half<0>{});
        tile_multiply_add<1, 2, 5>();
        along(Half<1>{});
        tile_stream<3>(a + layout.step, a_row);
        tile_multiply_add<0, 3, 6>();
        along(Half<0>{});
        tile_multiply_add<1, 3, 7>();
        along(Half<1>{});
        before_store(r0 + kTileRows);
        tile_store<0>(c, c_row);
        tile_store<1>(c + kLanes, c_row);
        after_store(r0);
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
