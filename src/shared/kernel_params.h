// kernel_params.h: what a CUDA kernel gets at launch: where the operands lie, sizes, and constants in log2 units. It is
// the same struct for every kernel of attention. src/cuda/launch.cpp fills it in. The host compiler and NVRTC include
// this file.
#pragma once

#include "shared/key_splits.h"
#include "shared/mask.h"
#include "shared/tile_rounds.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Strides are in elements. A broadcast dimension has stride 0. Packed tensors have stride_batch 0, and their rows are
// counted from the start of the first sequence.
struct DeviceTensor {
    void* data;
    Index stride_batch;
    Index stride_row;
    Index stride_head;
    Index stride_col;
};

// Cumulative or used lengths in device memory, int32 or int64. The host never reads them, so kernels clamp them.
struct DeviceLengths {
    const void* data;
    int wide;
};

FLASHTILE_DEVICE Index value_at(const DeviceLengths& list, Index n) {
    return list.wide != 0 ? static_cast<const long long*>(list.data)[n] : static_cast<const int*>(list.data)[n];
}

// The scales of an e4m3 tensor; strides are in elements, and 0 where a dimension shares a scale.
struct DeviceScales {
    const float* data;  // null: all are 1
    Index stride_batch;
    Index stride_head;
    Index stride_block;
    int query_heads;  // heads are query heads rather than key heads
};

// A tensor that the user's functions read; strides are in elements. Dimensions that it does not have have size 1.
struct DeviceFunctionTensor {
    const void* data;
    Index shape[4];
    Index stride[4];
    int near_shape[4], near_stride[4];  // the same, where 32 bits hold all offsets (KernelConfig::near_positions)
};

// The gradient of such a tensor, which has its shape.
struct DeviceTensorGradient {
    float* data;  // null: it is not asked for
    Index stride[4];
};

// One of the user's two lists of blocks, BlockList of core/problem.h.
struct DeviceBlockList {
    const int* counts;  // null: it is not given
    const int* indices;
    Index room;
    Index count_stride[3], index_stride[4];
};

// The description of a tensor for TMA: the driver's CUtensorMap.
struct alignas(64) TensorMap {
    unsigned long long word[16];
};

struct KernelParams {
    // Only for Hopper's kernels. Dimensions are (columns, rows, heads, batch).
    TensorMap q_map, k_map, v_map, dout_map;
    TensorMap out_map;   // its boxes have 64 rows
    TensorMap bias_map;  // (keys, queries, heads, batch); heads and batch may be 1
    int first_key;       // row 0 of k_map and v_map
    int first_query;     // row 0 of q_map and dout_map

    DeviceTensor q, k, v, out, lse, slopes, bias, mask;
    DeviceTensor dout, dq, dk, dv, dlse, dbias;
    DeviceLengths cu_seqlens_q, cu_seqlens_k, seqused_k;

    int batch, heads, kv_heads;
    int group;                 // heads / kv_heads
    Index seqlen_q, seqlen_k;  // of the longest sequence, if packed
    Index total_q, total_k;    // rows, if packed
    Index head_dim_v;
    Index bias_batch, bias_heads, bias_rows, bias_cols;  // the shape of dbias

    double natural_unit;  // turns log2 units into natural ones: scale / scale_log2, the latter as rounded to float
    float scale;
    float scale_log2;  // scale * log2(e)
    float softcap;
    int top_left;
    Index diagonal, window_left, window_right;
    Index origin_b, origin_h, origin_i, origin_j;

    unsigned dropout_threshold;
    unsigned long long seed, offset;
    const unsigned long long* seed_ptr;  // if not null, the kernel reads the seed there; likewise the offset
    const unsigned long long* offset_ptr;

    // How Hopper's forward deals out tiles: in rounds if all sequences have equal lengths, else by a counter in the
    // workspace.
    TileRounds rounds;
    unsigned* ws_ticket;  // how many tiles have been taken

    // Backward's workspace. Its rows are counted in units of unit_rows rows (the main kernel's Br), and every sequence
    // starts at a new unit. Row i of sequence b and head h lies at (h * units + first unit of b) * unit_rows + i.
    int unit_rows;
    // LSE and D of row i lie at i ^ row_flip. Hopper's kernel loads those of two neighbouring rows at once, into an
    // even and an odd register. The rows' scores lie in an even and an odd register, too. With LSE and D exchanged no
    // instruction reads two registers of the same bank.
    int row_flip;
    float* ws_lse;  // in log2 units; +inf for a row that sees no key or does not exist
    float* ws_lse_natural;
    float* ws_D;
    float* ws_dq;       // fp32; within a unit, in the order of the accumulator fragments
    unsigned* ws_turn;  // for each (head, unit, half of a pair), how many blocks of keys have added to its dQ
    Index units;        // how many a head has, over all sequences

    // A cache. Its rows or pages are k's and v's batch entries.
    DeviceLengths seqused_q, first_k, cache_batch_idx;
    const int* block_table;
    Index block_table_stride;
    Index cache_rows;  // or pages
    int page_size;
    Index attention_chunk;  // 0: off
    DeviceTensor tree_mask, sinks;
    int sinks_fp32;  // rather than the type of q

    // Where keys are split. What a split of row (b, i, h) came to is number ((b part_queries + i) heads + h)
    // most_splits + split.
    SplitRule split_rule;
    Index most_splits;  // of any sequence
    int part_queries;   // of a sequence, of those whose keys may be split
    float* ws_part_o;   // O, not divided by l; head_dim_v columns
    float* ws_part_ml;  // m as softmax has it, and l
    // Where splits are dealt out: how many units of work come before each sequence's, and how many there are in all;
    // null where thread blocks walk through all that there is room for.
    unsigned* ws_first_unit;

    // Beside tree_mask: where the band and ALiBi take queries and their keys to be; null: i + off.
    const int* positions;
    Index positions_stride;  // of sequences
    // Groups of sequences that share their first keys, as the table of the group's first sequence has them.
    DeviceLengths prefix_groups, prefix_lengths;
    Index prefixes;  // how many groups
    // Keys that the call has appended to each sequence, which seqused_k does not count.
    DeviceLengths cu_seqlens_k_new;
    Index seqlen_k_new;  // where these are not packed

    DeviceTensor dsinks;
    int dsinks_fp32;  // rather than the type of q

    // Where thread blocks get shares: how many thread blocks there are, and how many rows a part has.
    unsigned share_blocks;
    int rounded_shares;  // KeyShares
    int part_rows;
    int fold_groups;  // how many groups of lanes fold a row's parts: a power of two
    int page_box;     // Hopper's forward: how many rows of a page TMA loads at a time
    // Hopper's backward: key heads whose blocks of keys take turns in the order of the launch. Its forward beside a
    // mask function: heads, of all sequences, whose tiles do.
    int section_heads;

    // Of each sequence, in place of the values above; null: those values. The host never reads them.
    const Index* diagonals;
    const Index* origins_i;
    const Index* origins_j;

    // Which blocks a mask function shows something of, or all; null: any may be. One of its heads stands for all where
    // the function does not ask for the head, and one of its sequences where they are alike.
    unsigned* ws_block_map;
    int block_map_batch, block_map_heads;

    // The user's lists of blocks, and what they say of each block: of the first sequence or head for all where there is
    // one of them.
    DeviceBlockList partial_blocks, full_blocks;
    int block_q, block_k, list_batch, list_heads;
    unsigned char* ws_block_kinds;

    DeviceScales q_scale, k_scale, v_scale;
    int scale_shift;  // log2 of a block's rows

    DeviceFunctionTensor function_tensors[8];  // in the order in which the call names them
    DeviceTensorGradient dtensors[8];          // likewise
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
