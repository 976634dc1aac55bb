// bf16_dot_avx512.h: Bf16Math on AVX-512's dot product of pairs of bf16. bf16_math.h includes it.
#pragma once

#include "cpu/isa/bf16_pairs.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct Bf16Math : Bf16Pairs {
    using Session = NoSession;
    using Operand = __m512bh;
    static constexpr bool kTiles = false;
    static constexpr int kStep = 2;
    static constexpr int64_t kPartner = 1;  // in a word, a query's partner is so many queries further on

    // A vector of words of an operand, from e4m3: bf16 has its numbers, with another exponent; the subnormal ones are
    // few.
    static constexpr float kE4m3 = 1.0f;
    static constexpr int kE4m3Vectors = 1;
    static void load_e4m3(const uint8_t* p, Operand (&x)[kE4m3Vectors]) {
        const __m512i of_subnormals =
            _mm512_broadcast_i32x4(_mm_set_epi16(0x3C60, 0x3C40, 0x3C20, 0x3C00, 0x3BC0, 0x3B80, 0x3B00, 0x0000));
        const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
        const __m512i magnitude = _mm512_and_si512(bytes, _mm512_set1_epi16(0x7F));
        const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
        const __mmask32 subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
        const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7F));
        const __m512i finite = _mm512_mask_permutexvar_epi16(normal, subnormal, magnitude, of_subnormals);
        constexpr int kAOrBAndC = 0xF8;
        x[0] = reinterpret_cast<Operand>(
            _mm512_ternarylogic_epi32(_mm512_mask_mov_epi16(finite, nan, _mm512_set1_epi16(0x7FC0)),
                                      _mm512_slli_epi16(bytes, 8), _mm512_set1_epi16(-0x8000), kAOrBAndC));
    }
    static Operand load_panel(const Scalar* b) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(b)); }
    static Operand spread(const Scalar* a) {
        int32_t pair;
        memcpy(&pair, a, sizeof pair);  // pairs of K's elements may lie at any even address
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

    // dst = the elements of a, then those of b, rounded to bf16.
    static void store_row(Scalar* dst, Vec a, Vec b) {
        _mm512_storeu_si512(dst, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
    }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
