// kernel_params.h: what a CUDA kernel gets at launch, the same struct for every kernel: where the operands lie, sizes,
// and constants in log2 units. Filled by src/cuda/launch.cpp. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/mask.h"
#include "shared/tile_rounds.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Strides are in elements; a broadcast dimension has stride 0. Packed tensors have stride_batch 0 and rows counted from
// the first sequence.
struct DeviceTensor {
    void* data;
    Index stride_batch;
    Index stride_row;
    Index stride_head;
    Index stride_col;
};

// Cumulative or used lengths in device memory, int32 or int64. Kernels clamp what they read there.
struct DeviceLengths {
    const void* data;
    int wide;
};

// What TMA needs to know of a tensor: the driver's CUtensorMap.
struct alignas(64) TensorMap {
    unsigned long long word[16];
};

struct KernelParams {
    // (columns, rows, heads, batch); the kernels of Hopper
    TensorMap q_map, k_map, v_map, dout_map;
    TensorMap out_map;   // boxes of 64 rows
    TensorMap bias_map;  // (keys, queries, heads, batch), of which the latter may be 1
    int first_key;       // row 0 of k_map and v_map
    int first_query;     // row 0 of q_map and dout_map

    DeviceTensor q, k, v, out, lse, slopes, bias, mask;
    DeviceTensor dout, dq, dk, dv, dlse, dbias;
    DeviceLengths cu_seqlens_q, cu_seqlens_k, seqused_k;

    int batch, heads, kv_heads;
    int group;                 // heads / kv_heads
    Index seqlen_q, seqlen_k;  // the longest, when packed
    Index total_q, total_k;    // rows, when packed
    Index head_dim_v;
    Index bias_batch, bias_heads, bias_rows, bias_cols;  // the shape that dbias sums to

    double natural_unit;  // scale / scale_log2, as it was rounded: from log2 units to natural ones
    float scale;
    float scale_log2;  // scale * log2(e)
    float softcap;
    int top_left;
    Index diagonal, window_left, window_right;
    Index origin_b, origin_h, origin_i, origin_j;

    unsigned dropout_threshold;
    unsigned long long seed, offset;
    const unsigned long long* seed_ptr;  // where not null, read instead
    const unsigned long long* offset_ptr;

    // Hopper's forward, unless lengths differ; where they do, its workspace.
    TileRounds rounds;
    unsigned* ws_ticket;  // how many tiles have been taken

    // Backward's workspace. Rows are counted in units of unit_rows (the main kernel's Br), every sequence starting at a
    // unit of its own: row i of sequence b, head h lies at (h * units + first unit of b) * unit_rows + i.
    int unit_rows;
    // Row i's LSE and D lie at i ^ row_flip. Hopper's kernel loads two neighbours' at once, to an even and an odd
    // register, as their scores lie; with places changed no instruction reads two registers of one bank.
    int row_flip;
    float* ws_lse;  // log2 units; +inf where a row sees no key or does not exist
    float* ws_lse_natural;
    float* ws_D;
    float* ws_dq;       // fp32, unit by unit in the order of the accumulator fragments
    unsigned* ws_turn;  // (head, unit): whose turn it is to add to dQ
    Index units;        // of a head, over all sequences
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
