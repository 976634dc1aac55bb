// quantize.h: the plan of quantising a tensor, or of the way back.
#pragma once

#include "core/quantize_problem.h"
#include "cuda/plan/plan.h"
#include "shared/quantize_params.h"

namespace flashtile::gpu {

// A launch for each step: one where blocks have scales of their own or scales are given, else also those that find
// scales.
struct QuantizePlan {
    int shares = 1;  // blocks of rows of a thread block
    FixedList<Launch, 4> launches{};
    FixedList<QuantizeStep, 4> steps{};
};

// Of one load from x, in bytes: what every row is aligned to, also that of the e4m3 numbers, and what pairs that are
// rotated can be cut into.
int quantize_vector_bytes(const QuantizeProblem& problem, const QuantizeOperands& operands);

// Throws UNSUPPORTED for a GPU that is too old.
QuantizePlan plan_quantize(const QuantizeProblem& problem, int vector_bytes, std::int64_t scale_blocks,
                           const DeviceFacts& device);
Launch plan_dequantize(const QuantizeProblem& problem, int vector_bytes, std::int64_t scale_blocks,
                       const DeviceFacts& device);

// Of rows of a head, of each sequence, or of all where these are packed: as many as there may be.
std::int64_t quantize_blocks(const QuantizeProblem& problem, std::int64_t scale_blocks);

}  // namespace flashtile::gpu
