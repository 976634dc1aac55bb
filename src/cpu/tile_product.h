// tile_product.h: the products of attention on the tile unit of AMX. A tile of C is 16 x 16 of fp32; one instruction
// adds to it over 32 elements of the reduction. S^T = K Q^T reads K's rows as they were copied and Q^T in pairs; O^T =
// V^T P^T reads V^T in tiles, packed once a block, and P^T in pairs. Both write the same transposed tiles as product.h
// does.
#pragma once

#include "cpu/head.h"
#include "cpu/isa/tiles.h"
#include "cpu/product.h"
#include "cpu/tile_choice.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Where the tiles of an A operand lie: words from row to row of a tile, from one 16 rows to the next, and from one step
// of the reduction to the next.
struct TileLayout {
    int64_t row, group, step;
};

class TileSoftmax;

struct TileMath : Bf16Pairs {
    using Softmax = TileSoftmax;
    using Session = TileSession;
    static constexpr bool kTiles = true;
    static constexpr int kStep = 32;
    static constexpr int64_t kPartner = kLanes;  // any order serves a sum over queries, and this needs no shuffle
    static constexpr int64_t kTileWords = kTileRows * kLanes;

    static bool narrow(int64_t d, int64_t dv) { return tile_choice(d, dv).narrow; }

    // Words of a step of V^T: a tile for each 16 columns.
    static int64_t tile_step(int64_t cols) { return round_up(cols, kTileRows) * kLanes; }

    // Rows `row_words` apart, as of K; columns as pack_tiles leaves them, as of V^T.
    static TileLayout row_tiles(int64_t row_words) { return {row_words, kTileRows * row_words, kLanes}; }
    static TileLayout column_tiles(int64_t cols) { return {kLanes, kTileWords, tile_step(cols)}; }

    // dst[lane] = the pair (even[lane], odd[lane]), rounded to bf16; halves go up. For probabilities: a NaN of any
    // other bits than arithmetic gives may be lost, but its row's l is NaN too.
    static void store_pair(Scalar* dst, Vec even, Vec odd) {
        const __m512i half = _mm512_set1_epi32(0x8000);
        const __m512i upper_bytes = _mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302);
        const __m512i low = _mm512_add_epi32(reinterpret_cast<__m512i>(even), half);
        const __m512i high = _mm512_add_epi32(reinterpret_cast<__m512i>(odd), half);
        _mm512_storeu_si512(dst, _mm512_mask_shuffle_epi8(high, 0x3333333333333333u, low, upper_bytes));
    }
    static void store_row(Scalar* dst, Vec a, Vec b) { store_pair(dst, a, b); }
};

// One step of V^T's tiles: row(n) is key n of 32, or null for zeros; columns past `cols` read as zero too.
template <class RowOf>
inline void pack_tiles(RowOf row, int64_t cols, uint32_t* buffer) {
    const uint16_t* rows[TileMath::kStep];
    for (int n = 0; n < TileMath::kStep; ++n) rows[n] = row(n);
    for (int64_t c0 = 0; c0 < cols; c0 += kTileRows, buffer += TileMath::kTileWords) {
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
        for (int n = 0; n < kLanes; ++n) store(reinterpret_cast<float*>(buffer + n * kLanes), tile[n]);
    }
}

// One or two tiles of C, one below the other, by the two of a panel's width. `kNarrow`: see tile_choice.h.
template <int kGroups, bool kAdd, bool kNarrow, class Along, class BeforeStore>
inline void tile_block(const uint32_t* a, const TileLayout& layout, const uint32_t* b, int64_t b_step, int64_t steps,
                       float* c, int64_t c_step, Along along, BeforeStore before_store) {
    const int64_t a_row = layout.row * 4, b_row = b_step * 4, c_row = c_step * 4;
    const auto load_a = [&]<int T>(const uint32_t* from) __attribute__((always_inline)) {
        if constexpr (kNarrow)
            tile_load<T>(from, a_row);
        else
            tile_stream<T>(from, a_row);
    };
    float* const below = c + kTileRows * c_step;
    if constexpr (kAdd) {
        tile_load<0>(c, c_row);
        tile_load<1>(c + kLanes, c_row);
        if constexpr (kGroups == 2) {
            tile_load<2>(below, c_row);
            tile_load<3>(below + kLanes, c_row);
        }
    } else {
        tile_zero<0>();
        tile_zero<1>();
        if constexpr (kGroups == 2) {
            tile_zero<2>();
            tile_zero<3>();
        }
    }
    for (int64_t s = 0; s < steps; ++s, a += layout.step, b += kTileRows * b_step) {
        load_a.template operator()<4>(a);
        tile_load<6>(b, b_row);
        tile_multiply_add<0, 4, 6>();
        tile_load<7>(b + kLanes, b_row);
        tile_multiply_add<1, 4, 7>();
        if constexpr (kGroups == 2) {
            if constexpr (kNarrow) along();
            load_a.template operator()<5>(a + layout.group);
            tile_multiply_add<2, 5, 6>();
            tile_multiply_add<3, 5, 7>();
        }
        along();
    }
    before_store();
    tile_store<0>(c, c_row);
    tile_store<1>(c + kLanes, c_row);
    if constexpr (kGroups == 2) {
        tile_store<2>(below, c_row);
        tile_store<3>(below + kLanes, c_row);
    }
}

// C = A B, or C += A B, where B and C are kPanel wide, rows of B are b_step words apart, and `rows` rows of C, in
// memory a multiple of 16, c_step floats. Other work is called in between: along() once or, if narrow, twice in each
// step of a reduction; before_store(end), where whole tiles end, and after_store(first) around stores.
template <bool kAdd, bool kNarrow = false, class Along = Nothing, class BeforeStore = Nothing,
          class AfterStore = Nothing>
inline void tile_product(const uint32_t* a, const TileLayout& layout, const uint32_t* b, int64_t b_step, int64_t rows,
                         int64_t steps, float* c, int64_t c_step, Along along = {}, BeforeStore before_store = {},
                         AfterStore after_store = {}) {
    for (int64_t r0 = 0, r1; r0 < rows; r0 = r1, a += 2 * layout.group, c += 2 * kTileRows * c_step) {
        r1 = r0 + 2 * kTileRows < rows ? r0 + 2 * kTileRows : rows;
        const auto store_rows = [&] { before_store(round_up(r1, kTileRows)); };
        if (r1 - r0 > kTileRows)
            tile_block<2, kAdd, kNarrow>(a, layout, b, b_step, steps, c, c_step, along, store_rows);
        else
            tile_block<1, kAdd, kNarrow>(a, layout, b, b_step, steps, c, c_step, along, store_rows);
        after_store(r0);
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
