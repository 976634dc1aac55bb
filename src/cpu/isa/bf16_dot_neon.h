// bf16_dot_neon.h: Bf16Math on AArch64's dot product of pairs of bf16 (BFDOT), which takes subnormal numbers for 0.
// bf16_math.h includes it.
#pragma once

#include <arm_neon.h>

#include "cpu/isa/bf16_pairs.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// e4m3 to words of bf16, which has all of its numbers.
struct E4m3Words {
    static constexpr int kRowVectors = 1;
    static constexpr int kPairVectors = 2;
    static int64_t column_of_word(int64_t n) { return n; }
    static int64_t column_of_pair(int64_t n) { return n; }

    // bf16 has another exponent; the subnormal numbers are few, and come from a table of their two bytes.
    static uint16x8_t widened(const uint8_t* p) {
        const uint8x8_t low = vcreate_u8(0x60402000C0800000), high = vcreate_u8(0x3C3C3C3C3B3B3B00);
        const uint8x8_t bytes = vld1_u8(p), magnitude = vand_u8(bytes, vdup_n_u8(0x7F));
        const uint16x8_t wide = vmovl_u8(magnitude);
        const uint16x8_t normal = vaddq_u16(vshlq_n_u16(wide, 4), vdupq_n_u16(120 << 7));
        const uint16x8_t subnormal =
            vorrq_u16(vmovl_u8(vtbl1_u8(low, magnitude)), vshll_n_u8(vtbl1_u8(high, magnitude), 8));
        const uint16x8_t finite = vbslq_u16(vcltq_u16(wide, vdupq_n_u16(8)), subnormal, normal);
        const uint16x8_t nan = vceqq_u16(wide, vdupq_n_u16(0x7F));
        const uint16x8_t sign = vshlq_n_u16(vshrq_n_u16(vmovl_u8(bytes), 7), 15);
        return vorrq_u16(vbslq_u16(nan, vdupq_n_u16(0x7FC0), finite), sign);
    }
};

struct Bf16Math : Bf16Pairs {
    using Session = NoSession;
    using Operand = bfloat16x8_t;
    static constexpr bool kTiles = false;
    static constexpr int kStep = 2;
    static constexpr int64_t kPartner = 1;  // in a word, a query's partner is so many queries further on

    using Words = E4m3Words;
    static constexpr float kE4m3 = 1.0f;
    static constexpr int kE4m3Vectors = Words::kRowVectors;
    static void load_e4m3(const uint8_t* p, Operand (&x)[kE4m3Vectors]) {
        x[0] = vreinterpretq_bf16_u16(Words::widened(p));
    }
    static void load_e4m3_pairs(const uint8_t* first, const uint8_t* second, Operand (&x)[Words::kPairVectors]) {
        const uint16x8_t a = Words::widened(first), b = Words::widened(second);
        x[0] = vreinterpretq_bf16_u16(vzip1q_u16(a, b));
        x[1] = vreinterpretq_bf16_u16(vzip2q_u16(a, b));
    }
    static Operand load_panel(const Scalar* b) { return vreinterpretq_bf16_u32(vld1q_u32(b)); }
    static Operand spread(const Scalar* a) {
        uint32_t pair;
        memcpy(&pair, a, sizeof pair);  // pairs of K's elements may lie at any even address
        return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
    }
    static Vec multiply_add(Operand a, Operand b, Vec c) { return vbfdotq_f32(c, a, b); }

    // dst[lane] = the pair (even[lane], odd[lane]), rounded to bf16.
    static void store_pair(Scalar* dst, Vec even, Vec odd) {
        const uint16x4x2_t pairs =
            vzip_u16(vreinterpret_u16_bf16(vcvt_bf16_f32(even)), vreinterpret_u16_bf16(vcvt_bf16_f32(odd)));
        memcpy(dst, &pairs, sizeof pairs);
    }

    // dst = the elements of a, then those of b, rounded to bf16.
    static void store_row(Scalar* dst, Vec a, Vec b) {
        const bfloat16x8_t row = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b);
        memcpy(dst, &row, sizeof row);
    }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
