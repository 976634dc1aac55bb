// The arithmetic on every instruction set that the CPU has, against sums in double precision.
#include "kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "bf16.h"

namespace {

using gemma::Kernels;

class EveryInstructionSet : public testing::TestWithParam<const Kernels*> {};

std::vector<float> random_values(std::size_t size) {
    static std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(size);
    for (float& value : values) value = normal(random);
    return values;
}

// Compares y with x w^T, for numbers of rows that need every size of tile; y has room between its rows.
template <class Value, class ToFloat>
void check_product(void (*multiply)(const Value*, std::size_t, std::size_t, const Value*, std::size_t, float*,
                                    std::size_t),
                   const std::vector<Value>& x, const std::vector<Value>& w, ToFloat to_float) {
    constexpr std::size_t inputs = 96, outputs = 12, stride = 17;
    for (std::size_t rows = 1; rows <= x.size() / inputs; ++rows) {
        std::vector<float> y(rows * stride, -1.0f);
        multiply(x.data(), rows, inputs, w.data(), outputs, y.data(), stride);
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t n = 0; n < stride; ++n) {
                double expected = 0;
                for (std::size_t at = 0; at < inputs && n < outputs; ++at)
                    expected += double(to_float(x[row * inputs + at])) * to_float(w[n * inputs + at]);
                if (n >= outputs) expected = -1;
                EXPECT_NEAR(y[row * stride + n], expected, 1e-4) << rows << " rows, row " << row << ", output " << n;
            }
    }
}

TEST_P(EveryInstructionSet, MultipliesFp32) {
    check_product(GetParam()->multiply_fp32, random_values(13 * 96), random_values(12 * 96),
                  [](float value) { return value; });
}

TEST_P(EveryInstructionSet, MultipliesBf16) {
    std::vector<std::uint16_t> x, w;
    for (const float value : random_values(13 * 96)) x.push_back(gemma::to_bf16(value));
    for (const float value : random_values(12 * 96)) w.push_back(gemma::to_bf16(value));
    check_product(GetParam()->multiply_bf16, x, w, gemma::from_bf16);
}

TEST_P(EveryInstructionSet, Geglu) {
    std::vector<float> gate = {0.0f, -0.0f, 1e-30f, -1e4f, 1e4f, -100.0f, 100.0f};
    for (float value = -12; value < 12; value += 0.037f) gate.push_back(value);
    const auto up = random_values(gate.size());
    std::vector<float> out(gate.size());
    GetParam()->geglu(gate.data(), up.data(), out.data(), out.size());
    for (std::size_t n = 0; n < out.size(); ++n) {
        const double x = gate[n], inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        const double expected = up[n] * x / (1 + std::exp(-2 * inner));
        EXPECT_NEAR(out[n], expected, 2e-6 * (std::abs(expected) + 1e-3)) << "gate " << gate[n] << ", up " << up[n];
    }
}

INSTANTIATE_TEST_SUITE_P(, EveryInstructionSet, testing::ValuesIn(gemma::available_kernels()),
                         [](const auto& instance) { return instance.param->name; });

}  // namespace
