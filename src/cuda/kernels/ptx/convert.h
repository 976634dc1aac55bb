// convert.h: conversions between fp32 and narrower elements, an instruction for two values or one.
#pragma once

namespace flashtile::ptx {

// Packs two values into one register, `low` in the low half.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ unsigned pack_fp16(float low, float high) {
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// Four values, from the lowest byte up; beyond e4m3's range they become its largest, 448 (sm_89).
__device__ __forceinline__ unsigned pack_e4m3(float x0, float x1, float x2, float x3) {
    unsigned r;
    asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; "
        "mov.b32 %0, {low, high}; }"
        : "=r"(r)
        : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
    return r;
}

// Two e4m3 values to fp16, which holds them exactly, from the low byte up (sm_89).
__device__ __forceinline__ unsigned unpack_e4m3(unsigned short two) {
    unsigned r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(two));
    return r;
}

__device__ __forceinline__ float unpack_bf16(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

__device__ __forceinline__ float unpack_fp16(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// Products of two pairs, rounded; subnormal factors count.
__device__ __forceinline__ unsigned multiply_bf16(unsigned x, unsigned y) {
    unsigned r;
    asm("{ .reg .b32 zero; mov.b32 zero, 0x80008000; fma.rn.bf16x2 %0, %1, %2, zero; }" : "=r"(r) : "r"(x), "r"(y));
    return r;
}
__device__ __forceinline__ unsigned multiply_fp16(unsigned x, unsigned y) {
    unsigned r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
}

}  // namespace flashtile::ptx
