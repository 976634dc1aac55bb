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
    Index blocks;     // of rows, of a head; of all sequences, where these are packed
    unsigned shares;  // how many blocks of rows a thread block does, one after the other

    const void *cos, *sin;
    Index cos_stride, sin_stride, table_rows;
    int pairs, rotary_begin, interleaved;
    Element table_element;
    int hadamard;
    unsigned long long hadamard_seed;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
