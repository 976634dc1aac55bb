#include "linear.h"

#include <algorithm>
#include <cstdint>

#include "bf16.h"
#include "kernels.h"

namespace gemma {
namespace {

// Outputs that a task computes. Few rows: small tasks, which spread over many threads. Many rows: the weights of a task
// (64 x 2048 fp32 at most) stay in the second cache while all the rows pass by.
std::size_t outputs_a_task(std::size_t rows) {
    return rows > 8 ? 64 : 16;
}

std::size_t tasks_of(const Matrix& matrix, std::size_t block) {
    return (matrix.outputs + block - 1) / block;
}

// Tasks for all matrices' outputs; x has their type.
template <class Value, class Kernel>
void multiply_all(Threads& threads, Kernel kernel, const Linear& linear, std::span<const Value> x, std::span<float> y) {
    const auto block = outputs_a_task(x.size() / linear.front().inputs);
    const auto stride = outputs_of(linear);
    std::size_t tasks = 0;
    for (const auto& matrix : linear) tasks += tasks_of(matrix, block);
    threads.run(static_cast<std::int64_t>(tasks), [&](std::int64_t index) {
        auto task = static_cast<std::size_t>(index);
        float* out = y.data();
        auto matrix = linear.begin();
        for (; task >= tasks_of(*matrix, block); ++matrix) {
            task -= tasks_of(*matrix, block);
            out += matrix->outputs;
        }
        const auto first = task * block, rows = x.size() / matrix->inputs;
        const auto* const w = static_cast<const Value*>(matrix->data) + first * matrix->inputs;
        kernel(x.data(), rows, matrix->inputs, w, std::min(block, matrix->outputs - first), out + first, stride);
    });
}

}  // namespace

std::size_t outputs_of(const Linear& linear) {
    std::size_t outputs = 0;
    for (const auto& matrix : linear) outputs += matrix.outputs;
    return outputs;
}

void multiply(Threads& threads, flashtile::io::DType dtype, const Linear& linear, std::span<const float> x,
              std::span<float> y) {
    if (dtype == flashtile::io::DType::fp32) return multiply_all(threads, kernels().multiply_fp32, linear, x, y);
    std::vector<std::uint16_t> rounded(x.size());
    constexpr std::size_t piece = 16384;
    threads.run(static_cast<std::int64_t>((x.size() + piece - 1) / piece), [&](std::int64_t n) {
        const auto begin = static_cast<std::size_t>(n) * piece;
        for (auto at = begin; at < std::min(begin + piece, x.size()); ++at) rounded[at] = to_bf16(x[at]);
    });
    multiply_all(threads, kernels().multiply_bf16, linear, std::span<const std::uint16_t>(rounded), y);
}

}  // namespace gemma
