// dropout_mask.h: which probabilities dropout keeps, as a boolean tensor, for callers that want the mask on its own.
#pragma once

#include "shared/kernel_config.h"
#include "shared/kernel_params.h"
#include "shared/philox.h"

namespace flashtile {

// One thread block Br queries of one head; its threads lie along the keys, so that a row is written in whole lines.
template <KernelConfig config>
__device__ __forceinline__ void dropout_mask(const KernelParams& p) {
    const Index blocks = (p.seqlen_q + config.Br - 1) / config.Br;
    const Index head = blockIdx.x / blocks;
    const Index b = head / p.heads, h = head % p.heads;
    const Index i0 = blockIdx.x % blocks * config.Br;
    const Index i1 = i0 + config.Br < p.seqlen_q ? i0 + config.Br : p.seqlen_q;
    const Dropout dropout =
        Dropout::make(p.seed_ptr != nullptr ? *p.seed_ptr : p.seed, p.offset_ptr != nullptr ? *p.offset_ptr : p.offset,
                      static_cast<unsigned>(b), static_cast<unsigned>(h), p.dropout_threshold);
    auto* mask = static_cast<unsigned char*>(p.mask.data) + b * p.mask.stride_batch + h * p.mask.stride_head;
    for (Index i = i0; i < i1; ++i)
        for (Index j = threadIdx.x; j < p.seqlen_k; j += config.warps * 32)
            mask[i * p.mask.stride_row + j] = dropout.keeps(static_cast<unsigned>(i), static_cast<unsigned>(j)) ? 1 : 0;
}

}  // namespace flashtile
