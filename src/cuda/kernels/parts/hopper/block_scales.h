// block_scales.h: the scales of blocks of rows of K and V, for Hopper's forward on e4m3: a warp beside the producer
// looks them up, and tells consumers with each block of K what its scores and its P are multiplied by (sm_90).
#pragma once

#include "cuda/kernels/parts/common/scales.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/special_function.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// A block of V may have kMostQuotient of the scale that O has. O takes another scale where it has more, or all have
// less than kLeastQuotient.
constexpr float kMostQuotient = 1.5f, kLeastQuotient = 0.5f;
constexpr float kLeastRaise = -60.0f;  // beside a block of keys whose values are as good as 0

// Of one tile, whose blocks are told in order. Each lane of the warp has a group of keys, and lanes beyond the groups
// have the last one.
template <KernelConfig config>
struct BlockScales {
    static constexpr int kGroups = config.Bc / kScaleGroup;
    static_assert(kGroups <= 4, "");

    RowScales of_keys, of_values;
    float values = 0.0f;  // O's scale

    __device__ __forceinline__ BlockScales() {}
    __device__ __forceinline__ BlockScales(const KernelParams& p, const Sequence& seq)
        : of_keys(key_scales<config>(p, p.k_scale, seq)), of_values(key_scales<config>(p, p.v_scale, seq)) {}

    // Writes what there is to tell of the block of keys from j on: of each group K's scale, log2 of V's scale in units
    // of O's, and 2^- of that; of the block O's scale, and the quotient of the one before and this one.
    __device__ __forceinline__ void tell(const KernelParams& p, int j, unsigned address) {
        const int lane = static_cast<int>(lane_id()), g = smaller(lane, kGroups - 1);
        const float keys = of_keys.at(p, j + g * kScaleGroup);
        const float scale = fmaxf(of_values.at(p, j + g * kScaleGroup), kLeastScale);
        float most = fmaxf(scale, __shfl_xor_sync(~0u, scale, 1));
        most = __shfl_sync(~0u, fmaxf(most, __shfl_xor_sync(~0u, most, 2)), 0);
        float quotient = 1.0f;
        if (!(most <= kMostQuotient * values && most >= kLeastQuotient * values)) {
            if (values > 0.0f) quotient = values / most;
            values = most;
        }
        const float raise = fmaxf(ptx::log2(scale) - ptx::log2(values), kLeastRaise);
        const auto bits = [](float x) { return __float_as_uint(x); };
        if (lane < kGroups)
            ptx::store_shared(address + lane * 16, make_uint4(bits(keys), bits(raise), bits(ptx::exp2(-raise)), 0));
        if (lane == kGroups) ptx::store_shared(address + kGroups * 16, make_uint4(bits(values), bits(quotient), 0, 0));
    }
};

}  // namespace flashtile
