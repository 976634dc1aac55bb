// bf16_dot_avx512.h: Bf16Math on AVX-512's dot product of pairs of bf16. bf16_math.h includes it.
#pragma once

#include "cpu/isa/bf16_pairs.h"
#if defined(__AVX512VBMI__)
#include "cpu/isa/e4m3_words_vbmi.h"
#else
#include "cpu/isa/e4m3_words_avx512.h"
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct Bf16Math : Bf16Pairs {
    using Session = NoSession;
    using Operand = __m512bh;
    static constexpr bool kTiles = false;
    static constexpr int kStep = 2;
    static constexpr int64_t kPartner = 1;  // in a word, a query's partner is so many queries further on

    using Words = E4m3Words;
    static constexpr float kE4m3 = 1.0f;
    static constexpr int kE4m3Vectors = Words::kRowVectors;
    static void load_e4m3(const uint8_t* p, Operand (&x)[kE4m3Vectors]) {
        __m512i words[kE4m3Vectors];
        Words::words(p, words);
        FLASHTILE_UNROLL
        for (int n = 0; n < kE4m3Vectors; ++n) x[n] = reinterpret_cast<Operand>(words[n]);
    }
    static void load_e4m3_pairs(const uint8_t* first, const uint8_t* second, Operand (&x)[Words::kPairVectors]) {
        __m512i pairs[Words::kPairVectors];
        Words::pairs(first, second, pairs);
        FLASHTILE_UNROLL
        for (int n = 0; n < Words::kPairVectors; ++n) x[n] = reinterpret_cast<Operand>(pairs[n]);
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
