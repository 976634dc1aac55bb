// e4m3_words_vbmi.h: e4m3 to words of bf16 where AVX-512 looks up bytes in tables of 128 (VBMI): the high and the low
// byte of a number's bf16 by its magnitude, 64 numbers at a time. bf16_dot_avx512.h includes it.
#pragma once

#include <immintrin.h>

#include "cpu/isa/extensions.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct E4m3Tables {
    alignas(64) uint8_t low[128] = {}, high[128] = {};  // bytes of a magnitude's bf16
    constexpr E4m3Tables() {
        for (int magnitude = 0; magnitude < 128; ++magnitude) {
            const int bits = bf16_of(magnitude);
            low[magnitude] = static_cast<uint8_t>(bits & 0xFF);
            high[magnitude] = static_cast<uint8_t>(bits >> 8);
        }
    }
    static constexpr int bf16_of(int magnitude) {
        if (magnitude == 0 || magnitude == 0x7F) return magnitude == 0 ? 0 : 0x7FC0;
        int exponent = magnitude >> 3, digits = magnitude & 7;
        if (exponent > 0) return ((exponent + 120) << 7) + (digits << 4);
        for (exponent = 1; digits < 8; --exponent) digits *= 2;  // of subnormal numbers
        return ((exponent + 120) << 7) + ((digits & 7) << 4);
    }
};
constexpr E4m3Tables kE4m3Tables{};

struct E4m3Words {
    static constexpr int kRowVectors = 2;   // of which words() fills that many, of a row's neighbours
    static constexpr int kPairVectors = 4;  // likewise pairs(), of two rows' elements in a column
    // Which of the columns that words() and pairs() take the n-th bf16 of a row or the n-th pair has: bytes are
    // interleaved within lanes of 128 bits.
    static int64_t column_of_word(int64_t n) { return n / 32 * 8 + n % 32 / 8 * 16 + n % 8; }
    static int64_t column_of_pair(int64_t n) { return n / 16 * 4 + n % 16 / 4 * 16 + n % 4; }

    static void words(const uint8_t* p, __m512i (&x)[kRowVectors]) { widen(_mm512_loadu_si512(p), x[0], x[1]); }
    static void pairs(const uint8_t* first, const uint8_t* second, __m512i (&x)[kPairVectors]) {
        const __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
        widen(_mm512_unpacklo_epi8(a, b), x[0], x[1]);
        widen(_mm512_unpackhi_epi8(a, b), x[2], x[3]);
    }

private:
    static void widen(__m512i numbers, __m512i& first, __m512i& second) {
        const __m512i low = low_bytes(numbers), high = high_bytes(numbers);
        first = _mm512_unpacklo_epi8(low, high);
        second = _mm512_unpackhi_epi8(low, high);
    }
    // Indices count modulo 128, so that the sign is none of the index.
    static __m512i low_bytes(__m512i numbers) {
        return _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Tables.low), numbers,
                                        _mm512_load_si512(kE4m3Tables.low + 64));
    }
    static __m512i high_bytes(__m512i numbers) {
        const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Tables.high), numbers,
                                                      _mm512_load_si512(kE4m3Tables.high + 64));
        constexpr int kAOrBAndC = 0xF8;
        return _mm512_ternarylogic_epi32(high, numbers, _mm512_set1_epi8(-0x80), kAOrBAndC);
    }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
