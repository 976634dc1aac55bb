// flash_backward.h: the launches of a backward pass by blocks, of FlashAttention and of our own general kernels: what
// comes before the main kernel and after it, and the memory that they share.
#pragma once

#include <optional>
#include <vector>

#include "baselines/cuda/baseline_kernel.h"
#include "baselines/cuda/shape.h"

namespace flashtile::gpu_baselines {

// In their order: D and what P is made of, dK and dV and dQ in fp32, dQ as it is stored.
struct BackwardTexts {
    KernelText prepare, main, finish;
};
BackwardTexts general_backward_texts(const Shape& shape, Element element, const gpu::Tile& tile);
BackwardTexts flash_attention_1_backward_texts(const Shape& shape, Element element, WorkPartition ways,
                                               const gpu::Tile& tile);

class FlashBackward {
public:
    FlashBackward(const Shape& shape, const BackwardTexts& texts, int ordinal);

    std::size_t extra_bytes() const;
    // `main_blocks`: thread blocks of the main kernel.
    void launch(const KernelParams& params, std::int64_t main_blocks, const gpu_resources::Stream& stream) const;

private:
    std::int64_t heads_, query_blocks_, units_;
    int unit_rows_;
    BaselineKernel prepare_, main_, finish_;
    gpu_resources::Buffer lse_, natural_lse_, D_, dq_, turn_;
};

}  // namespace flashtile::gpu_baselines
