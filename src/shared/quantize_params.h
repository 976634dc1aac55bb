// quantize_params.h: what the kernels that make e4m3 numbers of a tensor, or the tensor of those, get at launch.
// Included by the host compiler and by NVRTC.
#pragma once

#include "shared/append_params.h"
#include "shared/e4m3.h"
#include "shared/kernel_layout.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Scales of blocks are made as blocks are quantised. Other scales take launches of their own: they are cleared, hold
// the largest magnitude for a while, and become scales.
enum class QuantizeStep : int { clear_scales, find_largest, finish_scales, quantize };

struct QuantizeParams {
    QuantizeStep step;
    DeviceTensor x, quantized;
    float* scale;
    Index scale_stride_batch, scale_stride_head, scale_stride_block;
    Index scale_batch, scale_heads, scale_blocks;  // how many there are
    int makes_scales;                              // rather than reading them
    int group;                                     // heads that share a scale

    DeviceLengths cu_seqlens, rotary_offsets, positions;
    Index batch, heads, seqlen, total;
    Index blocks;  // of rows, of a head; of all sequences, where these are packed

    const void *cos, *sin;
    Index cos_stride, sin_stride, table_rows;
    int pairs, rotary_begin, interleaved;
    Element table_element;
    int hadamard;
    unsigned long long hadamard_seed;
};

// How many elements a lane has side by side, how many lanes share a row, and how many such pieces a lane has of it.
constexpr int quantize_piece(const KernelConfig& c) {
    return c.vector_bytes / size_of(c.element);
}
constexpr int quantize_row_lanes(const KernelConfig& c) {
    int lanes = 1;
    while (lanes < 32 && lanes * quantize_piece(c) < c.head_dim) lanes *= 2;
    return lanes;
}
constexpr int quantize_pieces(const KernelConfig& c) {
    const int columns = quantize_row_lanes(c) * quantize_piece(c);
    return (c.head_dim + columns - 1) / columns;
}
// Elements of a block of Br rows that a lane has.
constexpr int quantize_elements(const KernelConfig& c) {
    return c.Br * quantize_row_lanes(c) / (c.warps * 32) * quantize_pieces(c) * quantize_piece(c);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
