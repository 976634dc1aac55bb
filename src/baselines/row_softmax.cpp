// row_softmax.cpp: see row_softmax.h. g++ compiles each function once per instruction set and picks at load time.
#include "baselines/row_softmax.h"

#include <algorithm>
#include <bit>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FLASHTILE_EVERY_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLASHTILE_EVERY_ISA
#endif

namespace flashtile::baselines {
namespace {

// e^x for x <= 0, to 2 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, e^r by its Taylor series, 2^n put into the exponent bits.
// Below -87 the result, 1e-38, adds nothing to a sum that holds e^0.
inline __attribute__((always_inline)) float exp_nonpositive(float x) {
    constexpr float log2_e = 1.44269504f;
    constexpr float ln2_high = 0.693359375f;     // few bits, so that n * ln2_high is exact
    constexpr float ln2_low = -2.12194440e-4f;   // ln 2 - ln2_high
    constexpr float round_to_int = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    x = std::max(x, -87.0f);
    const float shifted = x * log2_e + round_to_int;
    const float n = shifted - round_to_int;
    const float r = (x - n * ln2_high) - n * ln2_low;
    float e = 1.0f / 5040;
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    const auto exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(e) + exponent);
}

}  // namespace

FLASHTILE_EVERY_ISA float row_max(const float* s, std::int64_t columns) {
    float m = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : m)
    for (std::int64_t j = 0; j < columns; ++j) m = s[j] > m ? s[j] : m;
    return m;
}

FLASHTILE_EVERY_ISA float exp_row(const float* s, float m, float* p, std::int64_t columns) {
    float l = 0.0f;
#pragma omp simd reduction(+ : l)
    for (std::int64_t j = 0; j < columns; ++j) {
        p[j] = exp_nonpositive(s[j] - m);
        l += p[j];
    }
    return l;
}

FLASHTILE_EVERY_ISA void scale_row(float factor, float* x, std::int64_t columns) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) x[j] *= factor;
}

FLASHTILE_EVERY_ISA void add_row(float factor, const float* x, float* y, std::int64_t columns) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) y[j] += factor * x[j];
}

FLASHTILE_EVERY_ISA void multiply_row(const float* factors, float* x, std::int64_t columns) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) x[j] *= factors[j];
}

FLASHTILE_EVERY_ISA float dot_row(const float* x, const float* y, std::int64_t columns) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < columns; ++j) sum += x[j] * y[j];
    return sum;
}

FLASHTILE_EVERY_ISA void score_gradient_row(const float* p, const float* dp, float D, float* ds, std::int64_t columns) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) ds[j] = p[j] * (dp[j] - D);
}

void softmax_row(const float* s, float* p, std::int64_t visible, std::int64_t columns) {
    const float l = exp_row(s, row_max(s, visible), p, visible);
    scale_row(1.0f / l, p, visible);
    std::fill(p + visible, p + columns, 0.0f);
}

void softmax_backward_row(const float* p, const float* dp, float* ds, std::int64_t columns) {
    score_gradient_row(p, dp, dot_row(p, dp, columns), ds, columns);
}

}  // namespace flashtile::baselines
