// block_kinds.h: a user's lists of blocks to a byte for each block (shared/block_kinds.h), which the kernels behind
// this one ask. Lists are read as far as they have room, and what they name beyond the keys is nothing: whatever lies
// in them leads nowhere.
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "shared/block_kinds.h"

namespace flashtile {

// Each warp has a block of queries.
template <KernelConfig config>
__device__ __forceinline__ void block_kinds(const KernelParams& p) {
    const Index rows = (p.seqlen_q + p.block_q - 1) / p.block_q, columns = (p.seqlen_k + p.block_k - 1) / p.block_k;
    const Index line = Index{blockIdx.x} * config.warps + warp_id();
    if (line >= rows * p.list_heads * p.list_batch) return;
    const Index row = line % rows, h = line / rows % p.list_heads, b = line / rows / p.list_heads;
    unsigned char* const kinds = p.ws_block_kinds + line * columns;
    for (Index n = lane_id(); n < columns; n += 32) kinds[n] = static_cast<unsigned char>(BlockKind::hidden);
    const auto mark = [&](const DeviceBlockList& list, BlockKind kind) {
        __syncwarp();  // what this list names twice, or after another one, is written last
        if (list.counts == nullptr) return;
        const Index count =
            list.counts[b * list.count_stride[0] + h * list.count_stride[1] + row * list.count_stride[2]];
        const int* const named =
            list.indices + b * list.index_stride[0] + h * list.index_stride[1] + row * list.index_stride[2];
        for (Index n = lane_id(); n < smaller(count, list.room); n += 32) {
            const Index block = named[n * list.index_stride[3]];
            if (block >= 0 && block < columns) kinds[block] = static_cast<unsigned char>(kind);
        }
    };
    // without a mask function nothing is hidden of a block
    mark(p.partial_blocks, config.lists_alone ? BlockKind::full : BlockKind::partial);
    mark(p.full_blocks, BlockKind::full);
}

}  // namespace flashtile
