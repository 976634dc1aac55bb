// quantize_problem.h: the validated problem of making e4m3 numbers and scales of a tensor, or the tensor of these, as
// problem.h has that of attention.
#pragma once

#include <cstdint>

#include "core/operand.h"

namespace flashtile {

struct QuantizeProblem {
    DType dtype = DType::unset;  // of x
    bool packed = false;
    std::int64_t batch = 0;
    std::int64_t seqlen = 0;  // 0, if packed
    std::int64_t total = 0;   // rows of x, of all sequences
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    ScaleKind scale = ScaleKind::tensor;
    std::int64_t scale_block = 0;  // rows of a block; 0 where there are none
    std::int64_t scale_heads = 0;  // of a sequence; so many heads, one after the other, share each scale
    bool scale_given = false;
    bool hadamard = false;
    // Rotation, as AppendProblem has it; 0 pairs: none.
    DType table_dtype = DType::unset;
    std::int64_t positions = 0;
    std::int64_t pairs = 0;
    std::int64_t rotary_begin = 0;
    bool interleaved = false;

    std::int64_t group() const { return heads / scale_heads; }
    bool operator==(const QuantizeProblem&) const = default;
};

struct QuantizeOperands {
    Operand x, quantized;
    Scales scale;
    Lengths cu_seqlens, rotary_offsets, positions;
    const void *cos = nullptr, *sin = nullptr;
    std::int64_t cos_stride = 0, sin_stride = 0;
    std::uint64_t hadamard_seed = 0;
};

}  // namespace flashtile
