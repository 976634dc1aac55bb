// precision.cpp: fp16 and bf16 by integer arithmetic on the bits of an fp32; e4m3 by its definition.
#include "oracle/precision.h"

#include <algorithm>
#include <array>
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

float from_e4m3_bits(std::uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
    if (exponent == 15 && mantissa == 7) return std::nanf("");
    if (exponent == 0) return static_cast<float>(sign * mantissa * 0x1p-9);
    return static_cast<float>(sign * std::ldexp(8 + mantissa, exponent - 10));
}

// The nearest of all numbers that there are, the even one of two.
std::uint8_t to_e4m3_bits(float value) {
    static const auto numbers = [] {
        std::array<float, 0x7F> all{};
        for (std::uint8_t bits = 0; bits < 0x7F; ++bits) all[bits] = from_e4m3_bits(bits);
        return all;
    }();
    const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (!std::isfinite(value)) return sign | 0x7F;
    const double magnitude = std::abs(static_cast<double>(value));
    const auto above = std::ranges::lower_bound(numbers, std::abs(value));
    if (above == numbers.end()) return sign | 0x7E;
    const auto high = static_cast<std::uint8_t>(above - numbers.begin());
    if (high == 0) return sign;
    const double to_high = static_cast<double>(*above) - magnitude, to_low = magnitude - static_cast<double>(above[-1]);
    const bool up = to_high < to_low || (to_high == to_low && high % 2 == 0);
    return static_cast<std::uint8_t>(sign | (up ? high : high - 1));
}

float round_to(float value, Precision precision) {
    switch (precision) {
        case Precision::e4m3:
            return from_e4m3_bits(to_e4m3_bits(value));
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
    const int stored_bits = precision == Precision::fp32   ? 23
                            : precision == Precision::fp16 ? 10
                            : precision == Precision::bf16 ? 7
                                                           : 3;
    const int smallest_exponent = precision == Precision::fp16 ? -14 : precision == Precision::e4m3 ? -6 : -126;
    const int exponent = value == 0.0 ? smallest_exponent : std::max(std::ilogb(value), smallest_exponent);
    return std::ldexp(1.0, exponent - stored_bits);
}

}  // namespace flashtile::oracle
