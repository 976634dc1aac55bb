// dropout_mask.h: which probabilities dropout keeps, as a boolean tensor, for callers that want the mask on its own.
#pragma once

#include "cuda/kernels/parts/common/dropout.h"

namespace flashtile {

// One thread block works on Br queries of one head. Its threads lie along the keys, so that a row is written in whole
// cache lines.
template <KernelConfig config>
__device__ __forceinline__ void dropout_mask(const KernelParams& p) {
    const HeadBlock own(p.seqlen_q, config.Br);
    const Index b = own.head / p.heads, h = own.head % p.heads;
    const Index i0 = own.block() * config.Br;
    const Index i1 = smaller(i0 + config.Br, p.seqlen_q);
    const DropoutSeed given(p);
    const Dropout dropout = Dropout::make(given.seed, given.offset, static_cast<unsigned>(p.origin_b + b),
                                          static_cast<unsigned>(p.origin_h + h), p.dropout_threshold);
    const Index origin_i = origin_i_of(p, b), origin_j = origin_j_of(p, b);
    auto* mask = static_cast<unsigned char*>(p.mask.data) + b * p.mask.stride_batch + h * p.mask.stride_head;
    for (Index i = i0; i < i1; ++i)
        for (Index j = threadIdx.x; j < p.seqlen_k; j += config.warps * 32)
            mask[i * p.mask.stride_row + j] =
                dropout.keeps(static_cast<unsigned>(origin_i + i), static_cast<unsigned>(origin_j + j)) ? 1 : 0;
}

}  // namespace flashtile
