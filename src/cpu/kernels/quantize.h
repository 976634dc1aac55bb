// quantize.h: a block of rows of one head to e4m3 and back. Rows are rotated, then multiplied by M, in fp32 and in the
// order of operations of shared/e4m3.h.
#pragma once

#include "core/quantize_problem.h"
#include "cpu/kernels/rotary.h"
#include "cpu/quantize_blocks.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// H / sqrt(n) of each n columns.
inline void transform_row(int64_t cols, float* row) {
    const int64_t size = hadamard_size(static_cast<int>(cols));
    const float factor = hadamard_factor(static_cast<int>(size));
    for (int64_t half = 1; half < size; half *= 2)
        for (int64_t c0 = 0; c0 < cols; c0 += 2 * half)
            for (int64_t c = c0; c < c0 + half; ++c) {
                const float a = row[c], b = row[c + half];
                row[c] = a + b;
                row[c + half] = a - b;
            }
    for (int64_t c = 0; c < cols; ++c) row[c] *= factor;
}

inline void apply_signs(uint64_t seed, int64_t cols, float* row) {
    const HadamardSigns signs = HadamardSigns::make(seed);
    for (int64_t c0 = 0; c0 < cols; c0 += 32) {
        const uint32_t word = signs.draw(static_cast<unsigned>(c0 / 128)).word[c0 / 32 % 4];
        for (int64_t c = c0; c < lesser(c0 + 32, cols); ++c)
            if ((word >> (c - c0) & 1) != 0) row[c] = -row[c];
    }
}

inline char* row_at(const Operand& x, const cpu::QuantizeBlock& block, int64_t n) {
    return static_cast<char*>(x.data) +
           (block.outer * x.stride_batch + (block.at + n) * x.stride_row + block.h * x.stride_head) *
               element_size(x.dtype);
}

// The block as it is to be quantised, to `rows`; returns its largest finite magnitude.
inline float quantize_prepare(const QuantizeProblem& p, const QuantizeOperands& x, const cpu::QuantizeBlock& block,
                              float* rows) {
    float largest = 0.0f;
    for (int64_t n = 0; n < block.end - block.first; ++n) {
        float* const row = rows + n * p.head_dim;
        load_row(p.dtype, row_at(x.x, block, n), p.head_dim, row);
        if (p.pairs != 0) {
            const int64_t in_memory = (p.packed ? 0 : block.b * p.seqlen) + block.at + n;
            const int64_t offset = x.rotary_offsets.data != nullptr ? length_at(x.rotary_offsets, block.b) : 0;
            const int64_t position =
                x.positions.data != nullptr ? length_at(x.positions, in_memory) : offset + block.first + n;
            rotate_row({p.table_dtype, x.cos, x.sin, x.cos_stride, x.sin_stride, p.pairs, p.interleaved}, position,
                       row + p.rotary_begin);
        }
        if (p.hadamard) {
            apply_signs(x.hadamard_seed, p.head_dim, row);
            transform_row(p.head_dim, row);
        }
        for (int64_t c = 0; c < p.head_dim; ++c) {
            const float magnitude = __builtin_fabsf(row[c]);
            if (magnitude > largest && magnitude < __builtin_inff()) largest = magnitude;
        }
    }
    return largest;
}

inline void quantize_store(const QuantizeProblem& p, const QuantizeOperands& x, const cpu::QuantizeBlock& block,
                           const float* rows, float scale) {
    const float inverse = 1.0f / scale;
    for (int64_t n = 0; n < block.end - block.first; ++n)
        store_e4m3_row(rows + n * p.head_dim, p.head_dim, inverse,
                       reinterpret_cast<uint8_t*>(row_at(x.quantized, block, n)));
}

// M is orthogonal, and H symmetric: what was multiplied by signs and then H comes back by H and then signs.
inline void dequantize(const QuantizeProblem& p, const QuantizeOperands& x, const cpu::QuantizeBlock& block,
                       float scale) {
    float row[FLASHTILE_MAX_HEAD_DIM];
    for (int64_t n = 0; n < block.end - block.first; ++n) {
        load_row(DType::fp8_e4m3, row_at(x.quantized, block, n), p.head_dim, row);
        for (int64_t c = 0; c < p.head_dim; ++c) row[c] *= scale;
        if (p.hadamard) {
            transform_row(p.head_dim, row);
            apply_signs(x.hadamard_seed, p.head_dim, row);
        }
        store_row(p.dtype, row, p.head_dim, row_at(x.x, block, n));
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
