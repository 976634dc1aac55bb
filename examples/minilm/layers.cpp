#include "layers.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace minilm {

void Linear::operator()(std::span<const float> x, std::span<float> y) const {
    const auto outputs = bias.size();
    const auto inputs = weight.size() / outputs;
    const auto rows = x.size() / inputs;
    for (std::size_t row = 0; row < rows; ++row) std::ranges::copy(bias, y.begin() + row * outputs);
    const auto m = static_cast<blasint>(rows), n = static_cast<blasint>(outputs), k = static_cast<blasint>(inputs);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, x.data(), k, weight.data(), k, 1.0f, y.data(),
                n);
}

void LayerNorm::operator()(std::span<float> x) const {
    constexpr double epsilon = 1e-12;
    const auto size = weight.size();
    for (; !x.empty(); x = x.subspan(size)) {
        const auto row = x.first(size);
        double sum = 0, squares = 0;
        for (const float value : row) sum += value;
        const double mean = sum / static_cast<double>(size);
        for (const float value : row) squares += (value - mean) * (value - mean);
        const double inverse_deviation = 1 / std::sqrt(squares / static_cast<double>(size) + epsilon);
        for (std::size_t n = 0; n < size; ++n)
            row[n] = static_cast<float>((row[n] - mean) * inverse_deviation) * weight[n] + bias[n];
    }
}

void gelu(std::span<float> x) {
    constexpr float inverse_sqrt2 = std::numbers::sqrt2_v<float> / 2;
    for (float& value : x) value = 0.5f * value * (1 + std::erf(value * inverse_sqrt2));
}

void add(std::span<float> x, std::span<const float> y) {
    std::ranges::transform(x, y, x.begin(), std::plus{});
}

}  // namespace minilm
