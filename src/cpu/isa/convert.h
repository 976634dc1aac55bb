// convert.h: rows of fp32, fp16, bf16 or bool elements to rows of fp32 and back, rounding to nearest even.
#pragma once

#include "core/problem.h"
#include "cpu/isa/vector.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float fp16_to_float(uint16_t half) {
#if defined(__F16C__)
    return _cvtsh_ss(half);
#elif defined(__aarch64__)
    __fp16 h;
    memcpy(&h, &half, sizeof h);
    return h;
#else
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) return from_bits(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);  // inf, NaN
    // Scaling by 2^112 moves fp16's exponent bias to fp32's and makes subnormals normal.
    return from_bits(sign | to_bits(from_bits(magnitude << 13) * from_bits(0x77800000u)));
#endif
}

inline uint16_t float_to_fp16(float x) {
#if defined(__F16C__)
    return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
#elif defined(__aarch64__)
    const __fp16 h = static_cast<__fp16>(x);
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
#else
    const uint32_t bits = to_bits(x);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
    if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds past 65504
    if (magnitude < 0x38800000u) {
        // Subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
        const uint32_t rounded = to_bits(from_bits(magnitude) + 0.5f) - 0x3F000000u;
        return static_cast<uint16_t>(sign | rounded);
    }
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u;
    return static_cast<uint16_t>(sign | rounded >> 13);
#endif
}

inline float bf16_to_float(uint16_t bits) {
    return from_bits(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bf16(float x) {
    const uint32_t bits = to_bits(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// One element of any input type.
inline float load_element(DType dtype, const void* data, int64_t n) {
    switch (dtype) {
        case DType::fp32:
            return static_cast<const float*>(data)[n];
        case DType::fp16:
            return fp16_to_float(static_cast<const uint16_t*>(data)[n]);
        case DType::bf16:
            return bf16_to_float(static_cast<const uint16_t*>(data)[n]);
        default:
            return static_cast<const uint8_t*>(data)[n] != 0 ? 1.0f : 0.0f;
    }
}

// dst[0..count) = the row at src.
inline void load_row(DType dtype, const void* src, int64_t count, float* dst) {
    if (dtype == DType::fp32) {
        memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    int64_t n = 0;
    const auto* half = static_cast<const uint16_t*>(src);
#if defined(__AVX512F__)
    if (dtype == DType::fp16)
        for (; n + 16 <= count; n += 16)
            store(dst + n, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half + n))));
    if (dtype == DType::bf16)
        for (; n + 16 <= count; n += 16) {
            const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(half + n));
            store(dst + n, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
        }
#elif defined(__AVX2__)
    if (dtype == DType::fp16)
        for (; n + 8 <= count; n += 8)
            store(dst + n, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + n))));
    if (dtype == DType::bf16)
        for (; n + 8 <= count; n += 8) {
            const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(half + n));
            store(dst + n, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
        }
#endif
    if (dtype == DType::bf16) {
        for (; n < count; ++n) dst[n] = bf16_to_float(half[n]);
    } else {
        for (; n < count; ++n) dst[n] = load_element(dtype, src, n);
    }
}

// The row at dst = src[0..count), rounded to dtype.
inline void store_row(DType dtype, const float* src, int64_t count, void* dst) {
    if (dtype == DType::fp32) {
        memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    auto* half = static_cast<uint16_t*>(dst);
    if (dtype == DType::bf16) {
        for (int64_t n = 0; n < count; ++n) half[n] = float_to_bf16(src[n]);
        return;
    }
    int64_t n = 0;
#if defined(__AVX512F__)
    for (; n + 16 <= count; n += 16)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(half + n),
                            _mm512_cvtps_ph(load(src + n), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    for (; n + 8 <= count; n += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(half + n),
                         _mm256_cvtps_ph(load(src + n), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; n < count; ++n) half[n] = float_to_fp16(src[n]);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
