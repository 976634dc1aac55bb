#include "norm.h"

#include <cmath>
#include <utility>

namespace gemma {

RmsNorm::RmsNorm(std::vector<float> scales, float epsilon) : scales_(std::move(scales)), epsilon_(epsilon) {}

void RmsNorm::operator()(std::span<const float> x, std::span<float> out) const {
    constexpr std::size_t lanes = 16;
    const auto size = scales_.size();
    for (; !x.empty(); x = x.subspan(size), out = out.subspan(size)) {
        float squares[lanes] = {};  // apart, so that compilers use vectors: they may not reorder a sum
        for (std::size_t n = 0; n < size; n += lanes)
            for (std::size_t lane = 0; lane < lanes; ++lane) squares[lane] += x[n + lane] * x[n + lane];
        float sum = 0;
        for (const float square : squares) sum += square;
        const float factor = 1 / std::sqrt(sum / static_cast<float>(size) + epsilon_);
        for (std::size_t n = 0; n < size; ++n) out[n] = x[n] * factor * scales_[n];
    }
}

}  // namespace gemma
