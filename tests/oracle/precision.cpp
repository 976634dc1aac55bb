// precision.cpp: fp16 and bf16 by integer arithmetic on the bits of an fp32.
#include "oracle/precision.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace flashtile::oracle {
namespace {

// Drops the low `count` bits of `bits`, rounding to nearest, ties to even. A carry runs into the exponent, as it
// should.
std::uint32_t drop_bits(std::uint32_t bits, int count) {
    const std::uint32_t half = 1u << (count - 1);
    const std::uint32_t odd = bits >> count & 1u;
    return (bits + half - 1 + odd) >> count;
}

}  // namespace

std::uint16_t to_fp16_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);   // NaN
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 2^16 and above, infinity
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    if (exponent >= -14) {  // normal; what rounds past 65504 carries into infinity
        const std::uint32_t rebased = magnitude - (112u << 23);
        return static_cast<std::uint16_t>(sign | drop_bits(rebased, 13));
    }
    if (exponent < -25) return sign;  // less than half of the smallest subnormal
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return static_cast<std::uint16_t>(sign | drop_bits(mantissa, -1 - exponent));  // in units of 2^-24
}

float from_fp16_bits(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7FFFu;
    if (magnitude > 0x7C00u) return std::nanf("");
    if (magnitude == 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u);
    if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
    return (sign != 0 ? -0x1p-24f : 0x1p-24f) * static_cast<float>(magnitude);  // subnormal
}

std::uint16_t to_bf16_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // NaN stays one
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    return static_cast<std::uint16_t>(sign | drop_bits(bits & 0x7FFFFFFFu, 16));
}

float from_bf16_bits(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float round_to(float value, Precision precision) {
    switch (precision) {
        case Precision::fp16:
            return from_fp16_bits(to_fp16_bits(value));
        case Precision::bf16:
            return from_bf16_bits(to_bf16_bits(value));
        case Precision::fp32:
            break;
    }
    return value;
}

double ulp_at(double value, Precision precision) {
    const int stored_bits = precision == Precision::fp32 ? 23 : precision == Precision::fp16 ? 10 : 7;
    const int smallest_exponent = precision == Precision::fp16 ? -14 : -126;
    const int exponent = value == 0.0 ? smallest_exponent : std::max(std::ilogb(value), smallest_exponent);
    return std::ldexp(1.0, exponent - stored_bits);
}

}  // namespace flashtile::oracle
