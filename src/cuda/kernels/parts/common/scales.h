// scales.h: the scales of e4m3 tensors, one a tensor, one a sequence and key head, or one a block of a head's rows.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

// Scales count as at least this, so that no quotient of them is infinite.
constexpr float kLeastScale = 1e-30f;

// A head's scales, of one sequence.
struct RowScales {
    const float* data;  // that of row 0; null: all are 1
    Index stride;       // of blocks
    int first, last;    // the blocks that count; others have the scales of these

    __device__ __forceinline__ float of_all() const { return data == nullptr ? 1.0f : *data; }
    __device__ __forceinline__ float at(const KernelParams& p, int row) const {
        const int block = row >> p.scale_shift;
        return data == nullptr ? 1.0f : data[(block < first ? first : block < last ? block : last) * stride];
    }
};

// In packed tensors blocks start anew with each sequence: how many lie before sequence b. All lanes of a warp call it.
__device__ __forceinline__ Index scale_blocks_before(const KernelParams& p, const DeviceLengths& cu_seqlens, Index b) {
    Index blocks = 0;
    for (Index n = lane_id(); n < b; n += kLanes) {
        const Index rows = greater(value_at(cu_seqlens, n + 1) - value_at(cu_seqlens, n), Index{0});
        blocks += (rows + (Index{1} << p.scale_shift) - 1) >> p.scale_shift;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) blocks += __shfl_xor_sync(~0u, blocks, distance);
    return blocks;
}

// Of rows [first, end) of a sequence. `b` is the sequence, or the row of a cache that has its blocks.
template <KernelConfig config>
__device__ __forceinline__ RowScales scales_of(const KernelParams& p, const DeviceScales& x, Index b, Index head,
                                               bool packed, const DeviceLengths& cu_seqlens, int first, int end) {
    RowScales own{x.data, x.stride_block, 0, 0};
    if (x.data == nullptr) return own;
    own.data += b * x.stride_batch + head * x.stride_head;
    if constexpr (config.scale_blocks) {
        own.first = first >> p.scale_shift;
        own.last = end > 0 ? (end - 1) >> p.scale_shift : 0;
        if (packed) own.data += scale_blocks_before(p, cu_seqlens, b) * x.stride_block;
    }
    return own;
}
// Of query head h.
template <KernelConfig config>
__device__ __forceinline__ RowScales query_scales(const KernelParams& p, const Sequence& seq, Index h) {
    const Index head = p.q_scale.query_heads != 0 ? h : seq.kv_head(p);
    return scales_of<config>(p, p.q_scale, seq.b, head, config.packed, p.cu_seqlens_q, 0, seq.seqlen_q);
}
// Of keys that lie one after the other. Scales of keys that no query sees may be anything.
template <KernelConfig config>
__device__ __forceinline__ RowScales key_scales(const KernelParams& p, const DeviceScales& x, const Sequence& seq) {
    const Index b = config.scale_blocks && config.cache ? seq.key_row : seq.b;
    return scales_of<config>(p, x, b, seq.kv_head(p), config.packed_keys(), p.cu_seqlens_k, seq.first_key<config>(0),
                             seq.end_key<config>(seq.seqlen_q));
}

}  // namespace flashtile
