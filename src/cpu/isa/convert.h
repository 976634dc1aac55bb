// convert.h: rows of fp32, fp16, bf16, e4m3 or bool elements to rows of fp32 and back, rounding to nearest even.
#pragma once

#include "core/problem.h"
#include "cpu/isa/vector.h"
#include "shared/e4m3.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

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
        case DType::fp8_e4m3:
            return e4m3_to_float(static_cast<const uint8_t*>(data)[n]);
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
#if defined(FLASHTILE_CONVERTS_VECTORS)
    if (dtype == DType::fp16)
        for (; n + kLanes <= count; n += kLanes) store(dst + n, widen_fp16(half + n));
    if (dtype == DType::bf16)
        for (; n + kLanes <= count; n += kLanes) store(dst + n, widen_bf16(half + n));
#endif
    if (dtype == DType::fp8_e4m3)
        for (; n + kPanel <= count; n += kPanel) {
            Vec first, second;
            widen_e4m3(static_cast<const uint8_t*>(src) + n, first, second);
            store(dst + n, first * kE4m3Unit);
            store(dst + n + kLanes, second * kE4m3Unit);
        }
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
#if defined(FLASHTILE_CONVERTS_VECTORS)
    for (; n + kLanes <= count; n += kLanes) store_fp16(half + n, load(src + n));
#endif
    for (; n < count; ++n) half[n] = float_to_fp16(src[n]);
}

// The row at dst = src[0..count) / scale, whose inverse is given.
inline void store_e4m3_row(const float* src, int64_t count, float inverse, uint8_t* dst) {
    for (int64_t n = 0; n < count; ++n) dst[n] = static_cast<uint8_t>(float_to_e4m3(src[n] * inverse));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
