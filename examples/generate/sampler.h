// sampler.h: from logits to the next token: the most likely one, or one drawn with the logits divided by a temperature.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace gemma {

class Sampler {
public:
    // Temperature 0 is greedy. The same seed draws the same tokens from the same logits.
    Sampler(double temperature, std::uint64_t seed) : temperature_(temperature), random_(seed) {}

    std::int32_t operator()(std::span<const float> logits);

private:
    double temperature_;
    std::mt19937_64 random_;
};

}  // namespace gemma
