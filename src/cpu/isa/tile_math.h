// tile_math.h: the arithmetics of AMX's tile unit: in which order the unit reads operands, and how rows and vectors of
// numbers are brought into that order.
//
// The unit multiplies bf16 alone, and an fp16 is the sum of two bf16. SplitTileMath therefore keeps both parts of every
// operand, each tile of low parts beside the tile of high ones, and products of parts are added up in one tile of C.
#pragma once

#include "cpu/isa/bf16_math.h"
#include "cpu/isa/sizes.h"
#include "cpu/isa/tiles.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Where the tiles of an A operand lie: words from row to row of a tile, from one 16 rows to the next, from one step of
// the reduction to the next, and from a tile to that of its low parts.
struct TileLayout {
    int64_t row, group, step, low;
};

// Which products of parts are added up. The product of the low parts is needed where a sum must be as good as fp32's,
// but not for O, which is rounded to fp16.
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

    // Constants of store_floats, for callers that keep them in registers.
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

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
