// convert.h: conversions between fp32 and 16-bit elements, one instruction each.
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

__device__ __forceinline__ float unpack_bf16(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

__device__ __forceinline__ float unpack_fp16(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

}  // namespace flashtile::ptx
