// scales.h: the scales of e4m3 tensors, one a tensor, one a sequence and key head, or one a block of a head's rows.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

// Hopper's forward: so many rows share their scales, whether a block of scales has 64 rows or 128.
constexpr int kScaleGroup = 64;

// A head's scales, of one sequence.
struct RowScales {
    const float* data;  // that of row 0; null: all are 1
    Index stride;       // of blocks
    int last;           // block

    __device__ __forceinline__ float of_block(int block) const {
        return data == nullptr ? 1.0f : data[(block < last ? block : last) * stride];
    }
    __device__ __forceinline__ float at(const KernelParams& p, int row) const { return of_block(row >> p.scale_shift); }
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

template <KernelConfig config>
__device__ __forceinline__ RowScales scales_of(const KernelParams& p, const DeviceScales& x, const Sequence& seq,
                                               bool packed, const DeviceLengths& cu_seqlens, int rows) {
    const Index head = x.query_heads != 0 ? seq.h : seq.kv_head(p);
    RowScales own{x.data, x.stride_block, 0};
    if (x.data == nullptr) return own;
    own.data += seq.b * x.stride_batch + head * x.stride_head;
    if constexpr (config.scale_blocks) {
        own.last = rows > 0 ? (rows - 1) >> p.scale_shift : 0;
        if (packed) own.data += scale_blocks_before(p, cu_seqlens, seq.b) * x.stride_block;
    }
    return own;
}
template <KernelConfig config>
__device__ __forceinline__ RowScales query_scales(const KernelParams& p, const Sequence& seq) {
    return scales_of<config>(p, p.q_scale, seq, config.packed, p.cu_seqlens_q, seq.seqlen_q);
}
template <KernelConfig config>
__device__ __forceinline__ RowScales key_scales(const KernelParams& p, const DeviceScales& x, const Sequence& seq) {
    return scales_of<config>(p, x, seq, config.packed_keys(), p.cu_seqlens_k, seq.seqlen_k);
}

}  // namespace flashtile
