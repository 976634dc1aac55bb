// convert.h: conversions between fp32 and 16-bit elements. A NaN becomes the one that the GPU makes.
#pragma once

namespace flashtile::ptx {

inline unsigned pack_bf16(float low, float high) {
    const auto rounded = [](float x) {
        if (x != x) return 0x7FFFu;
        const unsigned bits = __float_as_uint(x);
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // to nearest, ties to even
    };
    return rounded(high) << 16 | rounded(low);
}

inline unsigned pack_fp16(float low, float high) {
    const auto rounded = [](float x) -> unsigned {
        return x != x ? 0x7FFF : __builtin_bit_cast(unsigned short, static_cast<_Float16>(x));
    };
    return rounded(high) << 16 | rounded(low);
}

inline float unpack_bf16(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

inline float unpack_fp16(unsigned short bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

}  // namespace flashtile::ptx
