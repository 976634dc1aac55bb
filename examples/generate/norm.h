// norm.h: RMS normalisation: a row is scaled to a root mean square of 1, and then by the layer's own scales.
#pragma once

#include <span>
#include <vector>

namespace gemma {

class RmsNorm {
public:
    RmsNorm(std::vector<float> scales, float epsilon);  // a multiple of 16 scales

    // x is one row or several, one after the other; out may be x.
    void operator()(std::span<const float> x, std::span<float> out) const;

private:
    std::vector<float> scales_;
    float epsilon_;
};

}  // namespace gemma
