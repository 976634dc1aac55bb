// widen.h: e4m3 to 16-bit elements, which hold its values exactly, on every GPU.
#pragma once

#include "cuda/kernels/ptx/convert.h"
#include "cuda/kernels/ptx/permute.h"
#include "shared/kernel_config.h"

namespace flashtile {

// Four values, from the lowest byte up, none of which is NaN. Sign, exponent and mantissa go where the 16-bit type has
// them; the exponent is then too small by the difference of the biases, which a multiplication mends, of subnormal
// values as well.
template <Element kElement>
__device__ __forceinline__ uint2 widen_numbers(unsigned four) {
    const auto pair = [](unsigned high_bytes) {
        const unsigned sign = high_bytes & 0x80008000u, size = high_bytes & 0x7F007F00u;
        if constexpr (kElement == Element::bf16)
            return ptx::multiply_bf16(sign | size >> 4, 0x7B807B80u);  // 2^120
        else
            return ptx::multiply_fp16(sign | size >> 1, 0x5C005C00u);  // 2^8
    };
    return make_uint2(pair(ptx::permute(four, 0x1404)), pair(ptx::permute(four, 0x3424)));
}

// Not 0 if one of four values is NaN, which has all bits but the sign set. (No byte's carry reaches the next one.)
__device__ __forceinline__ unsigned nan_among(unsigned four) {
    return ((four & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u;
}

template <Element kElement>
__device__ __forceinline__ uint2 widen_e4m3(unsigned four) {
    uint2 wide = widen_numbers<kElement>(four);
    if (nan_among(four) != 0) {
        const auto nan = [&](int byte) { return (four >> 8 * byte & 0x7F) == 0x7F ? 0x7FFFu : 0u; };
        wide.x |= nan(0) | nan(1) << 16;
        wide.y |= nan(2) | nan(3) << 16;
    }
    return wide;
}

// 2 kCount bytes of a 16-bit type, of kCount e4m3 values; both places are aligned to what they have.
template <Element kElement, int kCount>
__device__ __forceinline__ void widen(unsigned short* to, const unsigned char* from) {
    if constexpr (kCount >= 4) {
#pragma unroll
        for (int n = 0; n < kCount; n += 4)
            *reinterpret_cast<uint2*>(to + n) = widen_e4m3<kElement>(*reinterpret_cast<const unsigned*>(from + n));
    } else {
#pragma unroll
        for (int n = 0; n < kCount; ++n) to[n] = static_cast<unsigned short>(widen_e4m3<kElement>(from[n]).x);
    }
}

}  // namespace flashtile
