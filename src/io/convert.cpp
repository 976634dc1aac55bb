// convert.cpp: see convert.h. Everything passes through fp64, which holds every value of the other types.
#include "io/convert.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace flashtile::io {
namespace {

struct Fp64 {
    using Bits = std::uint64_t;
    static double widen(Bits bits) { return std::bit_cast<double>(bits); }
    static Bits narrow(double value) { return std::bit_cast<Bits>(value); }
};

struct Fp32 {
    using Bits = std::uint32_t;
    static double widen(Bits bits) { return static_cast<double>(std::bit_cast<float>(bits)); }
    static Bits narrow(double value) { return std::bit_cast<Bits>(static_cast<float>(value)); }
};

// A 16-bit type with a sign, `exponent_bits` of exponent and the rest of mantissa.
template <int exponent_bits>
struct Small {
    using Bits = std::uint16_t;
    static constexpr int mantissa_bits = 15 - exponent_bits;
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr std::uint64_t infinity = ((1U << exponent_bits) - 1U) << mantissa_bits;
    static constexpr int wide_mantissa = 52;
    static constexpr int wide_bias = 1023;

    static double widen(Bits bits) {
        const std::uint64_t sign = static_cast<std::uint64_t>(bits >> 15) << 63;
        const std::uint64_t magnitude = bits & 0x7fffU;
        if (magnitude >= infinity)
            return std::bit_cast<double>(sign | 0x7ff0000000000000U | (magnitude - infinity) << (52 - mantissa_bits));
        // The magnitude's bits, moved to a double's place, are the value times 2^(bias - wide_bias), subnormals
        // included: a product by a power of two puts it right.
        const double scaled = std::bit_cast<double>(sign | magnitude << (wide_mantissa - mantissa_bits));
        return scaled * std::bit_cast<double>(static_cast<std::uint64_t>(2 * wide_bias - bias) << wide_mantissa);
    }

    static Bits narrow(double value) {
        const auto wide = std::bit_cast<std::uint64_t>(value);
        const auto sign = static_cast<Bits>(wide >> 48 & 0x8000U);
        const std::uint64_t magnitude = wide & 0x7fffffffffffffffU;
        if (magnitude > 0x7ff0000000000000U) return static_cast<Bits>(sign | infinity | 1U << (mantissa_bits - 1));
        const int exponent = static_cast<int>(magnitude >> wide_mantissa) - wide_bias + bias;
        if (exponent >= (1 << exponent_bits)) return static_cast<Bits>(sign | infinity);
        const std::uint64_t mantissa = magnitude & ((std::uint64_t{1} << wide_mantissa) - 1);
        int dropped = wide_mantissa - mantissa_bits;
        std::uint64_t kept = mantissa;
        if (exponent >= 1) {
            kept |= static_cast<std::uint64_t>(exponent) << wide_mantissa;
        } else {  // subnormal: the leading one becomes explicit
            kept |= std::uint64_t{1} << wide_mantissa;
            dropped += 1 - exponent;
            if (dropped > wide_mantissa + 1) return sign;
        }
        // A carry out of the mantissa runs into the exponent, and from the largest number to infinity.
        const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
        const std::uint64_t odd = kept >> dropped & 1U;
        const std::uint64_t rounded = (kept + half - 1 + odd) >> dropped;
        return static_cast<Bits>(sign | (rounded < infinity ? rounded : infinity));
    }
};

template <class From, class To>
void convert_all(const void* from, void* to, std::size_t count) {
    const auto* in = static_cast<const std::byte*>(from);
    auto* out = static_cast<std::byte*>(to);
    for (std::size_t n = 0; n < count; ++n) {
        typename From::Bits bits;
        std::memcpy(&bits, in + n * sizeof bits, sizeof bits);
        const auto result = To::narrow(From::widen(bits));
        std::memcpy(out + n * sizeof result, &result, sizeof result);
    }
}

// Calls visit with the type that stands for a dtype.
template <class Visit>
void with_type(DType dtype, Visit visit) {
    switch (dtype) {
        case DType::fp64:
            return visit(Fp64{});
        case DType::fp32:
            return visit(Fp32{});
        case DType::fp16:
            return visit(Small<5>{});
        case DType::bf16:
            return visit(Small<8>{});
        default:
            throw std::invalid_argument(std::string("convert: dtype is ") + name(dtype) + ", allowed is a float");
    }
}

}  // namespace

bool is_floating(DType dtype) {
    return dtype == DType::fp64 || dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

void convert(DType from_dtype, const void* from, DType to_dtype, void* to, std::size_t count) {
    if (from_dtype == to_dtype) {  // of any type
        std::memcpy(to, from, count * size_of(to_dtype));
        return;
    }
    with_type(from_dtype, [&]<class From>(From) {
        with_type(to_dtype, [&]<class To>(To) { convert_all<From, To>(from, to, count); });
    });
}

}  // namespace flashtile::io
