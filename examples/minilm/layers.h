// layers.h: what a BERT layer consists of beside attention: linear maps, layer normalisation, GELU. Activations are
// fp32, row-major, one row a token.
#pragma once

#include <span>
#include <vector>

namespace minilm {

struct Linear {
    std::vector<float> weight;  // (outputs, inputs)
    std::vector<float> bias;    // (outputs)

    // y = x weight^T + bias
    void operator()(std::span<const float> x, std::span<float> y) const;
};

struct LayerNorm {
    std::vector<float> weight;
    std::vector<float> bias;

    // Each row to mean 0 and variance 1, then scaled and shifted, in place.
    void operator()(std::span<float> x) const;
};

// x * Phi(x), with the error function itself and not one of its approximations.
void gelu(std::span<float> x);

// x += y
void add(std::span<float> x, std::span<const float> y);

}  // namespace minilm
