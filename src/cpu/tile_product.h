// tile_product.h: the products of forward.h on the tile unit of AMX. A tile of C is 16 x 16 of fp32; one instruction
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

struct TileMath {
    using Softmax = TileSoftmax;
    using Session = TileSession;
    using Scalar = uint32_t;  // two bf16: element 2s in the low half, 2s + 1 in the high half
    static constexpr int kPack = 2;
    static constexpr int kStep = 32;
    static constexpr int64_t kTileWords = kTileRows * kLanes;

    static bool narrow(int64_t d, int64_t dv) { return tile_choice(d, dv).narrow; }

    // Words of a step of V^T: a tile for each 16 columns.
    static int64_t tile_step(int64_t cols) { return round_up(cols, kTileRows) * kLanes; }

    // K as rows `row_words` apart; V^T as pack_tiles leaves it.
    static TileLayout key_tiles(int64_t row_words) { return {row_words, kTileRows * row_words, kLanes}; }
    static TileLayout value_tiles(int64_t cols) { return {kLanes, kTileWords, tile_step(cols)}; }

    // dst[lane] = the pair (even[lane], odd[lane]), rounded to bf16; halves go up. For probabilities: a NaN of any
    // other bits than arithmetic gives may be lost, but its row's l is NaN too.
    static void store_pair(Scalar* dst, Vec even, Vec odd) {
        const __m512i half = _mm512_set1_epi32(0x8000);
        const __m512i upper_bytes = _mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302);
        const __m512i low = _mm512_add_epi32(reinterpret_cast<__m512i>(even), half);
        const __m512i high = _mm512_add_epi32(reinterpret_cast<__m512i>(odd), half);
        _mm512_storeu_si512(dst, _mm512_mask_shuffle_epi8(high, 0x3333333333333333u, low, upper_bytes));
    }
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
inline void tile_block(const uint32_t* a, const TileLayout& layout, const uint32_t* b, int64_t steps, float* c,
                       Along along, BeforeStore before_store) {
    constexpr int64_t kRow = kPanel * 4;
    const int64_t a_row = layout.row * 4;
    const auto load_a = [&]<int T>(const uint32_t* from) __attribute__((always_inline)) {
        if constexpr (kNarrow)
            tile_load<T>(from, a_row);
        else
            tile_stream<T>(from, a_row);
    };
    float* const below = c + kTileRows * kPanel;
    if constexpr (kAdd) {
        tile_load<0>(c, kRow);
        tile_load<1>(c + kLanes, kRow);
        if constexpr (kGroups == 2) {
            tile_load<2>(below, kRow);
            tile_load<3>(below + kLanes, kRow);
        }
    } else {
        tile_zero<0>();
        tile_zero<1>();
        if constexpr (kGroups == 2) {
            tile_zero<2>();
            tile_zero<3>();
        }
    }
    for (int64_t s = 0; s < steps; ++s, a += layout.step, b += kTileRows * kPanel) {
        load_a.template operator()<4>(a);
        tile_load<6>(b, kRow);
        tile_multiply_add<0, 4, 6>();
        tile_load<7>(b + kLanes, kRow);
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
    tile_store<0>(c, kRow);
    tile_store<1>(c + kLanes, kRow);
    if constexpr (kGroups == 2) {
        tile_store<2>(below, kRow);
        tile_store<3>(below + kLanes, kRow);
    }
}

// C = A B, or C += A B, where C has `rows` rows of kPanel, in memory a multiple of 16. Other work is called in between:
// along() once or, if narrow, twice in each step of a reduction; before_store(end), where whole tiles end, and
// after_store(first) around stores.
template <bool kAdd, bool kNarrow = false, class Along, class BeforeStore = Nothing, class AfterStore = Nothing>
inline void tile_product(const uint32_t* a, const TileLayout& layout, const uint32_t* b, int64_t rows, int64_t steps,
                         float* c, Along along, BeforeStore before_store = {}, AfterStore after_store = {}) {
    for (int64_t r0 = 0, r1; r0 < rows; r0 = r1, a += 2 * layout.group) {
        r1 = r0 + 2 * kTileRows < rows ? r0 + 2 * kTileRows : rows;
        const auto store_rows = [&] { before_store(round_up(r1, kTileRows)); };
        if (r1 - r0 > kTileRows)
            tile_block<2, kAdd, kNarrow>(a, layout, b, steps, c + r0 * kPanel, along, store_rows);
        else
            tile_block<1, kAdd, kNarrow>(a, layout, b, steps, c + r0 * kPanel, along, store_rows);
        after_store(r0);
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
