#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gemma {

std::int32_t Sampler::operator()(std::span<const float> logits) {
    const auto largest = std::ranges::max_element(logits);
    if (temperature_ == 0) return static_cast<std::int32_t>(largest - logits.begin());

    std::vector<double> sums;  // of the weights up to each token
    double sum = 0;
    for (const float logit : logits) sums.push_back(sum += std::exp((logit - *largest) / temperature_));
    const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;  // in [0, 1)
    const auto drawn = std::ranges::upper_bound(sums, uniform * sum);
    return static_cast<std::int32_t>(drawn - sums.begin());
}

}  // namespace gemma
