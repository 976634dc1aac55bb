// clear_tensors.h: sets the gradients of named tensors to zero, to which backward_tensors_sm80.h then adds.
#pragma once

#include "shared/kernel_config.h"
#include "shared/kernel_params.h"

namespace flashtile {

template <KernelConfig config>
__device__ __forceinline__ void clear_tensors(const KernelParams& p) {
    constexpr int kTensors = sizeof(p.dtensors) / sizeof(p.dtensors[0]);
    for (int t = 0; t < kTensors; ++t) {
        if (p.dtensors[t].data == nullptr) continue;
        const Index(&shape)[4] = p.function_tensors[t].shape;
        const Index(&stride)[4] = p.dtensors[t].stride;
        const Index elements = shape[0] * shape[1] * shape[2] * shape[3], step = Index{gridDim.x} * blockDim.x;
        for (Index n = Index{blockIdx.x} * blockDim.x + threadIdx.x; n < elements; n += step) {
            Index at = 0, rest = n;
            for (int d = 3; d >= 0; --d) {
                at += rest % shape[d] * stride[d];
                rest /= shape[d];
            }
            p.dtensors[t].data[at] = 0.0f;
        }
    }
}

}  // namespace flashtile
