// softcap_test.cpp: the quotient of polynomials that CUDA's 16-bit kernels take for softcap, against the C library's
// tanh in fp64, with fp32's rounding of every step as there.
#include "shared/softcap.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flashtile {
namespace {

double quotient(float s, float c) {
    const SoftcapQuotient t = softcap_quotient(s, 1.0f / c);
    return static_cast<double>(t.numerator * (1.0f / t.denominator));
}

// Relative, down to the smallest scores, so that a large c costs nothing.
TEST(Softcap, QuotientIsTanhToAFewUnitsOfTheLastPlace) {
    for (const float c : {0.01f, 1.0f, 50.0f, 1e6f})
        for (float x = 1e-6f; x <= kSoftcapReach; x *= 1.0007f)
            for (const float s : {x * c, -x * c}) {
                const double expected =
                    static_cast<double>(c) * std::tanh(static_cast<double>(s) / static_cast<double>(c));
                ASSERT_NEAR(quotient(s, c), expected, 5e-7 * std::abs(expected)) << "s " << s << ", c " << c;
            }
}

TEST(Softcap, ZeroStaysZero) {
    EXPECT_EQ(quotient(0.0f, 30.0f), 0.0);
}

// What lies beyond the reach is clamped to it.
TEST(Softcap, TheReachIsWhereTanhEnds) {
    EXPECT_NEAR(quotient(kSoftcapReach, 1.0f), 1.0, 3e-7);
    EXPECT_NEAR(std::tanh(static_cast<double>(kSoftcapReach)), 1.0, 1.2e-7);
}

TEST(Softcap, NanStays) {
    EXPECT_TRUE(std::isnan(quotient(std::nanf(""), 30.0f)));
}

}  // namespace
}  // namespace flashtile
