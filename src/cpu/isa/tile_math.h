// tile_math.h: the arithmetics of AMX's tile unit: in which order the unit reads operands, and how rows and vectors of
// numbers are brought into that order.
//
// The unit multiplies bf16 only. An fp16 number is the sum of two bf16 numbers, a high and a low part. SplitTileMath
// keeps both parts of every operand, each tile of low parts beside the tile of high parts. The products of parts are
// added up in one tile of C.
#pragma once

#include "cpu/isa/bf16_math.h"
#include "cpu/isa/sizes.h"
#include "cpu/isa/tiles.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Where the tiles of an A operand lie, as distances in words: `row` between two rows of a tile, `group` between two
// groups of 16 rows, `step` between two steps of the reduction, `low` from a tile to the tile of its low parts.
struct TileLayout {
    int64_t row, group, step, low;
};

// Which products of parts are added up. Scores must be as exact as in fp32, for which the product of the low parts is
// needed. O is rounded to fp16, so it does without.
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
    static constexpr int64_t kPartner = kLanes;  // a sum over queries may take any order, and this one needs no shuffle
    static constexpr int64_t kTileWords = kTileRows * kLanes;

    // How many words a step of V^T has: for each 16 columns one tile, or one tile for each part.
    static int64_t tile_step(int64_t cols) { return round_up(cols, kTileRows) * kParts * kLanes; }

    // The layouts of rows that lie `row_words` apart (K), and of columns as pack_tiles writes them (V^T).
    static TileLayout row_tiles(int64_t row_words) {
        return {row_words, kTileRows * row_words, kParts * kLanes, kLanes};
    }
    static TileLayout column_tiles(int64_t cols) { return {kLanes, kParts * kTileWords, tile_step(cols), kTileWords}; }

    // Stores pairs of the operand's type. bf16 is stored as it is. fp16 is split, and its low parts go to dst + low.
    static void store_words(Scalar* dst, int64_t low, IntVec pairs) {
        if constexpr (kParts == 1) {
            Bf16Pairs::store_words(dst, low, pairs);
        } else {
            const auto halves = [](IntVec x) {
                return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(x)));
            };
            // If x is not 0, neither of its parts is 0, and both have its sign. So infinity times x gives infinity in
            // every product of parts that is not finite. Infinity itself is split into the largest bf16 and infinity.
            store_parts(
                dst, low, halves(pairs), halves(pairs >> 16),
                [](Vec x) { return (reinterpret_cast<IntVec>(x) + (x != 0.0f)) & kHighHalf; }, Words{});
        }
    }

    // Splits a row of fp16. Each 16 words of high parts stand before their low parts. Zeros fill the last step.
    static void split_row(const uint16_t* row, int64_t cols, Scalar* dst) {
        for (int64_t c = 0; c < cols; c += kStep, dst += kParts * kLanes) {
            const auto present = static_cast<__mmask32>(cols - c >= kStep ? ~0u : (1u << (cols - c)) - 1);
            store_words(dst, kLanes, reinterpret_cast<IntVec>(_mm512_maskz_loadu_epi16(present, row + c)));
        }
    }

    // Constants of store_floats, for callers that keep them in registers.
    struct Words {
        IntVec rounding = broadcast_int(kParts == 1 ? 0x8000 : kHighHalf);
        IntVec upper_bytes =
            reinterpret_cast<IntVec>(_mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302));
    };

    // dst[lane] = the pair (even[lane], odd[lane]). Without low parts the numbers are rounded to bf16, halves up;
    // otherwise the low parts go to dst + low. It is for probabilities: a NaN with other bits than those that
    // arithmetic gives may be lost, but then l of its row is NaN, too.
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

    // Stores both parts: high(x) and x - high(x).
    template <class High>
    static void store_parts(Scalar* dst, int64_t low, Vec even, Vec odd, High high, const Words& words) {
        const auto left = [&](Vec x) { return reinterpret_cast<IntVec>(x - reinterpret_cast<Vec>(high(x))); };
        Bf16Pairs::store_words(dst, 0, merge(high(even), high(odd), words));
        Bf16Pairs::store_words(dst + low, 0, merge(left(even), left(odd), words));
    }

    // Pairs of the upper halves of even and odd.
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

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
