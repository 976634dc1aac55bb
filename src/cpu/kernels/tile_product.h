// tile_product.h: the products of attention on the tile unit of AMX. A tile of C is 16 x 16 of fp32; one instruction
// adds to it over 32 elements of the reduction. S^T = K Q^T reads K's rows as they were copied and Q^T in pairs; O^T =
// V^T P^T reads V^T in tiles, packed once a block, and P^T in pairs. Both write the same transposed tiles as product.h
// does.
//
// The unit knows bf16 alone, and an fp16 is the sum of two bf16: SplitTileMath keeps both parts of every operand, each
// tile of low parts beside that of high ones, and adds the products of parts into one tile of C.
#pragma once

#include "cpu/isa/tiles.h"
#include "cpu/kernels/head.h"
#include "cpu/kernels/product.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Where the tiles of an A operand lie: words from row to row of a tile, from one 16 rows to the next, from one step of
// the reduction to the next, and from a tile to that of its low parts.
struct TileLayout {
    int64_t row, group, step, low;
};

// Products of parts: that of the low ones is needed where a sum must be as good as fp32's, not for O, which is rounded
// to fp16.
enum class Parts { high, no_low_by_low, all };
constexpr int64_t products_of(Parts parts) {
    return parts == Parts::high ? 1 : (parts == Parts::all ? 4 : 3);
}

template <class Math>
class TileSoftmax;

template <int kPartsOfAnElement>
struct TileArithmetic : Bf16Pairs {
    using Softmax = TileSoftmax<TileArithmetic>;
    using Session = TileSession;
    static constexpr bool kTiles = true;
    static constexpr int kStep = 32;
    static constexpr int kParts = kPartsOfAnElement;
    static constexpr Parts kScores = kParts == 1 ? Parts::high : Parts::all;
    static constexpr Parts kSums = kParts == 1 ? Parts::high : Parts::no_low_by_low;
    static constexpr int64_t kPartner = kLanes;  // any order serves a sum over queries, and this needs no shuffle
    static constexpr int64_t kTileWords = kTileRows * kLanes;

    // Words of a step of V^T: a tile, or one of each part, for each 16 columns.
    static int64_t tile_step(int64_t cols) { return round_up(cols, kTileRows) * kParts * kLanes; }

    // Rows `row_words` apart, as of K; columns as pack_tiles leaves them, as of V^T.
    static TileLayout row_tiles(int64_t row_words) {
        return {row_words, kTileRows * row_words, kParts * kLanes, kLanes};
    }
    static TileLayout column_tiles(int64_t cols) { return {kLanes, kParts * kTileWords, tile_step(cols), kTileWords}; }

    // dst = pairs of the operand's type: bf16 as they are; fp16 in parts, the low ones at dst + low.
    static void store_words(Scalar* dst, int64_t low, IntVec pairs) {
        if constexpr (kParts == 1) {
            Bf16Pairs::store_words(dst, low, pairs);
        } else {
            const auto halves = [](IntVec x) {
                return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(x)));
            };
            // An x that is not 0 gets parts that are not 0 and of its sign, so that infinity times x, and x times
            // infinity, is infinity in every product of parts that is not finite. Infinity itself is the largest bf16
            // and infinity.
            store_parts(
                dst, low, halves(pairs), halves(pairs >> 16),
                [](Vec x) { return (reinterpret_cast<IntVec>(x) + (x != 0.0f)) & kHighHalf; }, Words{});
        }
    }

    // A row of fp16 in parts, 16 words of high ones before their low ones, with zeros to a whole step.
    static void split_row(const uint16_t* row, int64_t cols, Scalar* dst) {
        for (int64_t c = 0; c < cols; c += kStep, dst += kParts * kLanes) {
            const auto present = static_cast<__mmask32>(cols - c >= kStep ? ~0u : (1u << (cols - c)) - 1);
            store_words(dst, kLanes, reinterpret_cast<IntVec>(_mm512_maskz_loadu_epi16(present, row + c)));
        }
    }

    // Constants of store_floats, for who wants to keep them in registers.
    struct Words {
        IntVec rounding = broadcast_int(kParts == 1 ? 0x8000 : kHighHalf);
        IntVec upper_bytes =
            reinterpret_cast<IntVec>(_mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302));
    };

    // dst[lane] = the pair (even[lane], odd[lane]), rounded to bf16 if there are no low parts to go to dst + low;
    // halves go up. For probabilities: a NaN of any other bits than arithmetic gives may be lost, but its row's l is
    // NaN too.
    static void store_floats(Scalar* dst, int64_t low, Vec even, Vec odd, const Words& words = {}) {
        if constexpr (kParts == 1) {
            const auto up = [&](Vec x) { return reinterpret_cast<IntVec>(x) + words.rounding; };
            Bf16Pairs::store_words(dst, low, merge(up(even), up(odd), words));
        } else {
            store_parts(
                dst, low, even, odd, [&](Vec x) { return reinterpret_cast<IntVec>(x) & words.rounding; }, words);
        }
    }
    static void store_pair(Scalar* dst, Vec even, Vec odd, const Words& words = {}) {
        store_floats(dst, kPanel, even, odd, words);
    }
    static void store_row(Scalar* dst, Vec a, Vec b) { store_floats(dst, kLanes, a, b); }

private:
    static constexpr auto kHighHalf = static_cast<int32_t>(0xFFFF0000u);

    // Both parts: high(x), and what that leaves.
    template <class High>
    static void store_parts(Scalar* dst, int64_t low, Vec even, Vec odd, High high, const Words& words) {
        const auto left = [&](Vec x) { return reinterpret_cast<IntVec>(x - reinterpret_cast<Vec>(high(x))); };
        Bf16Pairs::store_words(dst, 0, merge(high(even), high(odd), words));
        Bf16Pairs::store_words(dst + low, 0, merge(left(even), left(odd), words));
    }

    // The pairs of upper halves.
    static IntVec merge(IntVec even, IntVec odd, const Words& words) {
        return reinterpret_cast<IntVec>(_mm512_mask_shuffle_epi8(reinterpret_cast<__m512i>(odd), 0x3333333333333333u,
                                                                 reinterpret_cast<__m512i>(even),
                                                                 reinterpret_cast<__m512i>(words.upper_bytes)));
    }
};
using TileMath = TileArithmetic<1>;
using SplitTileMath = TileArithmetic<2>;

// One step of V^T's tiles: row(n) is key n of 32, or null for zeros; columns past `cols` read as zero too.
template <class Math, class RowOf>
inline void pack_tiles(RowOf row, int64_t cols, uint32_t* buffer) {
    const uint16_t* rows[Math::kStep];
    for (int n = 0; n < Math::kStep; ++n) rows[n] = row(n);
    for (int64_t c0 = 0; c0 < cols; c0 += kTileRows, buffer += Math::kParts * Math::kTileWords) {
        const auto present = static_cast<__mmask16>(cols - c0 >= kTileRows ? 0xFFFF : (1 << (cols - c0)) - 1);
        const auto sixteen = [&](int n) {
            if (rows[n] == nullptr) return _mm512_setzero_si512();
            return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(present, rows[n] + c0));
        };
        Vec tile[kLanes];
        FLASHTILE_UNROLL
        for (int n = 0; n < kLanes; ++n)
            tile[n] = reinterpret_cast<Vec>(_mm512_or_si512(sixteen(2 * n), _mm512_slli_epi32(sixteen(2 * n + 1), 16)));
        transpose(tile);
        FLASHTILE_UNROLL
        for (int n = 0; n < kLanes; ++n)
            Math::store_words(buffer + n * kLanes, Math::kTileWords, reinterpret_cast<IntVec>(tile[n]));
    }
}

// Which of a panel's two vectors a product of tiles was for: said to what runs along.
template <int kHalf>
struct Half {};

// The two tiles of 16 rows of C, in registers kC and kC + 1. `meanwhile` is called after the first step: what waits for
// the products before these.
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
    // With what it does not load as the product before it left it.
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

// The same in squares of two tiles by two: a tile of B is loaded for two of A. Of high parts alone.
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

// C = A B where the reduction is of two steps: B stays in registers. Of high parts alone.
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
