// block_map.h: which blocks of the scores a mask function shows something of, a bit for each, as mask_blocks.h has
// found them before the main kernel: a block without is neither loaded nor computed. Bits of the key blocks lie one
// after the other, behind those of the query block before.
#pragma once

#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

template <KernelConfig config>
struct BlockMap {
    __device__ static __forceinline__ Index query_blocks(const KernelParams& p) {
        return (p.seqlen_q + config.Br - 1) / config.Br;
    }
    __device__ static __forceinline__ Index words(const KernelParams& p) {
        return (p.seqlen_k + config.Bc * 32 - 1) / (config.Bc * 32);
    }

    // Whether the block of query i0 and key j0 may show something; without a map every block may.
    __device__ static __forceinline__ bool shows(const KernelParams& p, Index b, Index h, int i0, int j0) {
        if constexpr (!config.mask_function) return true;
        if (p.ws_block_map == nullptr) return true;
        const Index head = b * p.block_map_heads + (p.block_map_heads == 1 ? 0 : h);
        const Index row = head * query_blocks(p) + i0 / config.Br;
        const int block = j0 / config.Bc;
        return (p.ws_block_map[row * words(p) + block / 32] >> block % 32 & 1) != 0;
    }
};

}  // namespace flashtile
