// e4m3_words_avx512.h: e4m3 to words of bf16, which has all of its numbers, on AVX-512 (BW). bf16_dot_avx512.h
// includes it where bytes cannot be looked up (e4m3_words_vbmi.h).
#pragma once

#include <immintrin.h>

#include "cpu/isa/extensions.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct E4m3Words {
    static constexpr int kRowVectors = 1;   // of which words() fills that many, of a row's neighbours
    static constexpr int kPairVectors = 2;  // likewise pairs(), of two rows' elements in a column
    // Which of the columns that words() and pairs() take the n-th bf16 of a row or the n-th pair has.
    static int64_t column_of_word(int64_t n) { return n; }
    static int64_t column_of_pair(int64_t n) { return n / 16 * 4 + n % 16 / 4 * 8 + n % 4; }

    static void words(const uint8_t* p, __m512i (&x)[kRowVectors]) { x[0] = widened(p); }
    static void pairs(const uint8_t* first, const uint8_t* second, __m512i (&x)[kPairVectors]) {
        const __m512i a = widened(first), b = widened(second);
        x[0] = _mm512_unpacklo_epi16(a, b);
        x[1] = _mm512_unpackhi_epi16(a, b);
    }

private:
    // bf16 has another exponent; the subnormal numbers are few.
    static __m512i widened(const uint8_t* p) {
        const __m512i of_subnormals =
            _mm512_broadcast_i32x4(_mm_set_epi16(0x3C60, 0x3C40, 0x3C20, 0x3C00, 0x3BC0, 0x3B80, 0x3B00, 0x0000));
        const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
        const __m512i magnitude = _mm512_and_si512(bytes, _mm512_set1_epi16(0x7F));
        const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
        const __mmask32 subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
        const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7F));
        const __m512i finite = _mm512_mask_permutexvar_epi16(normal, subnormal, magnitude, of_subnormals);
        constexpr int kAOrBAndC = 0xF8;
        return _mm512_ternarylogic_epi32(_mm512_mask_mov_epi16(finite, nan, _mm512_set1_epi16(0x7FC0)),
                                         _mm512_slli_epi16(bytes, 8), _mm512_set1_epi16(-0x8000), kAOrBAndC);
    }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
