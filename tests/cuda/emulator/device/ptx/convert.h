// convert.h: conversions between fp32 and narrower elements. A NaN becomes the one that the GPU makes.
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

inline unsigned pack_e4m3(float x0, float x1, float x2, float x3) {
    const auto rounded = [](float x) -> unsigned {
        if (x != x) return 0x7F;
        const unsigned sign = __float_as_uint(x) >> 24 & 0x80;
        const float size = x < 0 ? -x : x;
        if (size >= 448.0f) return sign | 0x7E;
        // the spacing of e4m3's values there; adding and taking off 2^23 of it rounds to nearest, ties to even
        const int exponent = static_cast<int>(__float_as_uint(size) >> 23) - 127;
        const int least = exponent < -6 ? -6 : exponent;
        const float magic = __uint_as_float(static_cast<unsigned>(least - 3 + 23 + 127) << 23);
        const float steps = ((size + magic) - magic) * __uint_as_float(static_cast<unsigned>(3 - least + 127) << 23);
        return sign | (static_cast<unsigned>(least + 6) * 8 + static_cast<unsigned>(steps));
    };
    return rounded(x3) << 24 | rounded(x2) << 16 | rounded(x1) << 8 | rounded(x0);
}

inline unsigned unpack_e4m3(unsigned short two) {
    const auto half = [&](int n) -> unsigned {
        const unsigned bits = two >> 8 * n & 0xFF, size = bits & 0x7F;
        if (size == 0x7F) return 0x7FFF;
        // a step of e4m3 at this exponent, of which there are 8 to 15, or fewer where there is no leading bit
        const unsigned exponent = size >> 3, steps = exponent == 0 ? size : 8 + size % 8;
        const float step = __uint_as_float((127 - 9 + (exponent == 0 ? 0 : exponent - 1)) << 23);
        return (bits & 0x80) << 8 |
               __builtin_bit_cast(unsigned short, static_cast<_Float16>(static_cast<float>(steps) * step));
    };
    return half(1) << 16 | half(0);
}

inline float unpack_bf16(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

inline float unpack_fp16(unsigned short bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

inline unsigned multiply_bf16(unsigned x, unsigned y) {
    const auto half = [](unsigned both, int n) { return unpack_bf16(static_cast<unsigned short>(both >> 16 * n)); };
    return pack_bf16(half(x, 0) * half(y, 0), half(x, 1) * half(y, 1));
}
inline unsigned multiply_fp16(unsigned x, unsigned y) {
    const auto half = [](unsigned both, int n) { return unpack_fp16(static_cast<unsigned short>(both >> 16 * n)); };
    return pack_fp16(half(x, 0) * half(y, 0), half(x, 1) * half(y, 1));
}

}  // namespace flashtile::ptx
