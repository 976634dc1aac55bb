// convert_test.cpp: conversions between the floating-point types: every value of the small ones, and rounding at every
// border between two of them.
#include "io/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "oracle/precision.h"

namespace flashtile::tests {
namespace {

using io::DType;

template <class To, class From>
To converted(DType from_dtype, From from, DType to_dtype) {
    // Neither side is aligned.
    std::byte in[1 + sizeof from], out[1 + sizeof(To)];
    std::memcpy(in + 1, &from, sizeof from);
    io::convert(from_dtype, in + 1, to_dtype, out + 1, 1);
    To result;
    std::memcpy(&result, out + 1, sizeof result);
    return result;
}

struct Small {
    const char* name;
    DType dtype;
    float (*value)(std::uint16_t);
    std::uint16_t infinity;
    double past_the_largest;  // the next value, had the exponent another bit
};

void PrintTo(const Small& type, std::ostream* stream) {
    *stream << type.name;
}

class ConvertSmall : public testing::TestWithParam<Small> {
protected:
    // Of a magnitude's bits.
    double value(unsigned bits) const {
        const Small& type = GetParam();
        return bits == type.infinity ? type.past_the_largest
                                     : static_cast<double>(type.value(static_cast<std::uint16_t>(bits)));
    }
};

TEST_P(ConvertSmall, WidensEveryValue) {
    const Small& type = GetParam();
    for (unsigned bits = 0; bits <= 0xffff; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float expected = type.value(half);
        const auto wide = converted<double>(type.dtype, half, DType::fp64);
        const auto single = converted<float>(type.dtype, half, DType::fp32);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(wide) && std::isnan(single)) << bits;
            continue;
        }
        ASSERT_EQ(single, expected) << bits;
        ASSERT_EQ(wide, static_cast<double>(expected)) << bits;
        ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << bits;
        ASSERT_EQ(converted<std::uint16_t>(DType::fp64, wide, type.dtype), half);
        ASSERT_EQ(converted<std::uint16_t>(DType::fp32, single, type.dtype), half);
        ASSERT_EQ(converted<std::uint16_t>(type.dtype, half, type.dtype), half);
    }
}

// Halfway between two neighbours the even one is next, and a hair to either side the nearer one.
TEST_P(ConvertSmall, RoundsAtEveryBorder) {
    const Small& type = GetParam();
    for (unsigned bits = 0; bits < type.infinity; ++bits) {
        const double middle = (value(bits) + value(bits + 1)) / 2;
        const unsigned even = bits % 2 == 0 ? bits : bits + 1;
        const double hair_below = std::nextafter(middle, 0.0), hair_above = std::nextafter(middle, HUGE_VAL);
        ASSERT_EQ(converted<std::uint16_t>(DType::fp64, middle, type.dtype), even) << middle;
        ASSERT_EQ(converted<std::uint16_t>(DType::fp64, hair_below, type.dtype), bits) << middle;
        ASSERT_EQ(converted<std::uint16_t>(DType::fp64, hair_above, type.dtype), bits + 1) << middle;
        ASSERT_EQ(converted<std::uint16_t>(DType::fp64, -middle, type.dtype), even | 0x8000U) << middle;
        if (static_cast<double>(static_cast<float>(middle)) == middle) {
            ASSERT_EQ(converted<std::uint16_t>(DType::fp32, static_cast<float>(middle), type.dtype), even) << middle;
        }
    }
}

TEST_P(ConvertSmall, OfWhatIsOutOfRange) {
    const Small& type = GetParam();
    using Limits = std::numeric_limits<double>;
    const auto narrow = [&](double from) { return converted<std::uint16_t>(DType::fp64, from, type.dtype); };
    EXPECT_EQ(narrow(Limits::max()), type.infinity);
    EXPECT_EQ(narrow(Limits::infinity()), type.infinity);
    EXPECT_EQ(narrow(-Limits::infinity()), type.infinity | 0x8000U);
    EXPECT_EQ(narrow(Limits::min()), 0U);
    EXPECT_EQ(narrow(-Limits::denorm_min()), 0x8000U);
    EXPECT_TRUE(std::isnan(type.value(narrow(Limits::quiet_NaN()))));
    // A NaN whose bits all lie below the small type's: cut off, it would be an infinity.
    const std::uint64_t low_nan = 0x7ff0000000000001;
    double nan = 0;
    std::memcpy(&nan, &low_nan, sizeof nan);
    EXPECT_TRUE(std::isnan(type.value(narrow(nan))));
}

INSTANTIATE_TEST_SUITE_P(Each, ConvertSmall,
                         testing::Values(Small{"fp16", DType::fp16, oracle::from_fp16_bits, 0x7c00, 0x1p16},
                                         Small{"bf16", DType::bf16, oracle::from_bf16_bits, 0x7f80, 0x1p128}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Convert, BetweenFp64AndFp32) {
    for (const double value : {0.0, 1.0, -1.5, 0x1.fffffep127, 0x1p-149, 0x1.8p-140}) {
        EXPECT_EQ(static_cast<double>(converted<float>(DType::fp64, value, DType::fp32)), value);
        EXPECT_EQ(converted<double>(DType::fp32, static_cast<float>(value), DType::fp64), value);
        EXPECT_EQ(converted<double>(DType::fp64, value, DType::fp64), value);
    }
    EXPECT_EQ(converted<float>(DType::fp64, 1.0 + 0x1p-24, DType::fp32), 1.0f);  // halfway, to even
    EXPECT_EQ(converted<float>(DType::fp64, 1.0 + 0x1.8p-23, DType::fp32), 1.0f + 0x1p-22f);
    EXPECT_EQ(converted<float>(DType::fp64, 1.0 + 0x1.000001p-24, DType::fp32), 1.0f + 0x1p-23f);
    EXPECT_EQ(converted<float>(DType::fp64, 1e300, DType::fp32), HUGE_VALF);
}

// Through fp32 this would be rounded twice, the second time from halfway down.
TEST(Convert, RoundsOnce) {
    EXPECT_EQ(converted<std::uint16_t>(DType::fp64, 1.0 + 0x1p-11 + 0x1p-40, DType::fp16), 0x3c01);
    EXPECT_EQ(converted<std::uint16_t>(DType::fp64, 1.0 + 0x1p-8 + 0x1p-40, DType::bf16), 0x3f81);
}

TEST(Convert, ManyValuesAndNone) {
    const std::vector<float> from = {1.0f, -2.0f, 0.5f};
    std::vector<std::uint16_t> to(4, 0xabcd);
    io::convert(DType::fp32, from.data(), DType::fp16, to.data(), 3);
    EXPECT_EQ(to, (std::vector<std::uint16_t>{0x3c00, 0xc000, 0x3800, 0xabcd}));
    io::convert(DType::fp32, nullptr, DType::fp16, nullptr, 0);
}

TEST(Convert, RefusesWhatIsNoFloat) {
    std::uint64_t value = 1, result = 7;
    for (const DType dtype : {DType::boolean, DType::int64, DType::int32, DType::uint8}) {
        EXPECT_FALSE(io::is_floating(dtype));
        EXPECT_THROW(io::convert(dtype, &value, DType::fp32, &result, 1), std::invalid_argument);
        EXPECT_THROW(io::convert(DType::fp32, &value, dtype, &result, 1), std::invalid_argument);
    }
    EXPECT_EQ(result, 7U);
}

}  // namespace
}  // namespace flashtile::tests
