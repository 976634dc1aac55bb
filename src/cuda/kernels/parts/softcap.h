// softcap.h: c tanh(s / c). fp32 kernels take CUDA's tanhf; 16-bit elements a quotient that is good to a few units of
// fp32's last place and takes fewer instructions, and one of the special function unit's where tanhf takes two.
#pragma once

#include "cuda/kernels/ptx/clamp.h"
#include "cuda/kernels/ptx/reciprocal.h"
#include "shared/kernel_config.h"
#include "shared/softcap.h"

namespace flashtile {

template <Element kElement>
__device__ __forceinline__ float capped(float s, float c, float inverse_c) {
    if constexpr (kElement == Element::fp32) {
        return tanhf(s * inverse_c) * c;
    } else {
        const SoftcapQuotient t = softcap_quotient(ptx::clamp(s, kSoftcapReach * c), inverse_c);
        return t.numerator * ptx::reciprocal(t.denominator);
    }
}

}  // namespace flashtile
