// widen.h: e4m3 to 16-bit elements, which hold its values exactly, on every GPU. NaN stays NaN.
#pragma once

#include "cuda/kernels/ptx/convert.h"
#include "cuda/kernels/ptx/permute.h"
#include "shared/kernel_config.h"

namespace flashtile {

// Four values, from the lowest byte up. Where the GPU has an instruction for it, that makes fp16 of two, and bf16 comes
// by way of that.
template <Element kElement>
__device__ __forceinline__ uint2 widen_by_instruction(unsigned four) {
    const auto pair = [](unsigned short two) {
        const unsigned halves = ptx::unpack_e4m3(two);
        if constexpr (kElement == Element::fp16) return halves;
        return ptx::pack_bf16(ptx::unpack_fp16(static_cast<unsigned short>(halves)),
                              ptx::unpack_fp16(static_cast<unsigned short>(halves >> 16)));
    };
    return make_uint2(pair(static_cast<unsigned short>(four)), pair(static_cast<unsigned short>(four >> 16)));
}

// Elsewhere sign, exponent and mantissa go where the 16-bit type has them; the exponent is then too small by the
// difference of the biases, which a multiplication mends, of subnormal values as well. NaN, which has all bits but the
// sign set, is put in.
template <Element kElement>
__device__ __forceinline__ uint2 widen_by_bits(unsigned four) {
    const auto pair = [](unsigned high_bytes) {
        const unsigned sign = high_bytes & 0x80008000u, size = high_bytes & 0x7F007F00u;
        if constexpr (kElement == Element::bf16)
            return ptx::multiply_bf16(sign | size >> 4, 0x7B807B80u);  // 2^120
        else
            return ptx::multiply_fp16(sign | size >> 1, 0x5C005C00u);  // 2^8
    };
    uint2 wide = make_uint2(pair(ptx::permute(four, 0x1404)), pair(ptx::permute(four, 0x3424)));
    // The question is asked of four at once: no byte's carry reaches the next one.
    if ((((four & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u) != 0) {
        const auto nan = [&](int byte) { return (four >> 8 * byte & 0x7F) == 0x7F ? 0x7FFFu : 0u; };
        wide.x |= nan(0) | nan(1) << 16;
        wide.y |= nan(2) | nan(3) << 16;
    }
    return wide;
}

template <Element kElement>
__device__ __forceinline__ uint2 widen_e4m3(unsigned four) {
    if constexpr (__CUDA_ARCH__ >= 890)
        return widen_by_instruction<kElement>(four);
    else
        return widen_by_bits<kElement>(four);
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
