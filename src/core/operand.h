// operand.h: where one tensor of a validated call lies, and what its elements are.
#pragma once

#include <cstdint>

#include "flashtile/flashtile.h"

namespace flashtile {

enum class DType : std::int32_t {
    unset = FLASHTILE_DTYPE_UNSET,
    fp32 = FLASHTILE_FP32,
    fp16 = FLASHTILE_FP16,
    bf16 = FLASHTILE_BF16,
    fp8_e4m3 = FLASHTILE_FP8_E4M3,
    boolean = FLASHTILE_BOOL,
    int32 = FLASHTILE_INT32,
    int64 = FLASHTILE_INT64,
};

const char* name(DType dtype);
std::int64_t size_of(DType dtype);

// What each scale of an e4m3 tensor is for: all of it, a sequence's key head (for q its group of heads), or a block of
// rows of a head.
enum class ScaleKind : std::int32_t { none, tensor, head, block };
const char* name(ScaleKind kind);

// Where one operand lies. Strides are in elements. A broadcast dimension has stride 0; the column stride is 1 or 0.
// Packed operands have no batch stride: rows are counted from the start of the first sequence.
struct Operand {
    void* data = nullptr;
    DType dtype = DType::unset;
    std::int64_t stride_batch = 0;
    std::int64_t stride_row = 0;
    std::int64_t stride_head = 0;
    std::int64_t stride_col = 1;

    explicit operator bool() const { return data != nullptr; }
};

// Scales, fp32. Strides are in elements, and 0 for what a scale does not depend on. Of blocks in a cache the batch
// stride is that of pages or rows of the cache. Packed blocks have none: a sequence's blocks follow those of the
// sequences before it, each with ceil(length / scale_block).
struct Scales {
    float* data = nullptr;
    std::int64_t stride_batch = 0;
    std::int64_t stride_head = 0;
    std::int64_t stride_block = 0;
    std::int64_t blocks = 0;  // that there are of a head, in one batch

    explicit operator bool() const { return data != nullptr; }
};

// Lengths in the caller's memory, int32 or int64.
struct Lengths {
    const void* data = nullptr;
    bool wide = false;

    explicit operator bool() const { return data != nullptr; }
    std::int64_t operator[](std::int64_t n) const {
        return wide ? static_cast<const std::int64_t*>(data)[n] : static_cast<const std::int32_t*>(data)[n];
    }
};

}  // namespace flashtile
