// kernels.h: the arithmetic beside attention that takes the time: products with weights, and the gated activation. One
// source, kernels.cpp, is compiled for several instruction sets, and the best that the CPU has is chosen once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gemma {

struct Kernels {
    const char* name;

    // y[row * stride + n] = x[row] . w[n] for `rows` rows of x and `outputs` rows of w, each `inputs` long; inputs is a
    // multiple of 32, outputs of 4. A row's bits do not depend on the rows beside it.
    void (*multiply_fp32)(const float* x, std::size_t rows, std::size_t inputs, const float* w, std::size_t outputs,
                          float* y, std::size_t stride);
    void (*multiply_bf16)(const std::uint16_t* x, std::size_t rows, std::size_t inputs, const std::uint16_t* w,
                          std::size_t outputs, float* y, std::size_t stride);

    // out[n] = gelu(gate[n]) * up[n], with GELU's tanh approximation, which Gemma was trained with.
    void (*geglu)(const float* gate, const float* up, float* out, std::size_t size);
};

// Those that this CPU can run, the best first.
const std::vector<const Kernels*>& available_kernels();

// The best.
const Kernels& kernels();

}  // namespace gemma
