// linear.h: products with weights, which stay where the model's file is mapped, in fp32 or bf16. Activations are fp32,
// row-major, one row a token.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/array.h"
#include "threads.h"

namespace gemma {

struct Matrix {
    const void* data;  // (outputs, inputs)
    std::size_t outputs, inputs;
};

// Matrices that multiply the same rows; the results of a row lie side by side.
using Linear = std::vector<Matrix>;

std::size_t outputs_of(const Linear& linear);

// y = x [w0; w1; ...]^T. With bf16 weights x is rounded to bf16; sums are fp32.
void multiply(Threads& threads, flashtile::io::DType dtype, const Linear& linear, std::span<const float> x,
              std::span<float> y);

}  // namespace gemma
