// kernel_texts.h: which kernels each of attention.h's makes: so that all can be compiled side by side before any is
// wanted, and looked at without a GPU.
#pragma once

#include <vector>

#include "baselines/cuda/attention.h"
#include "baselines/cuda/baseline_kernel.h"

namespace flashtile::gpu_baselines {

std::vector<KernelText> standard_texts(const Shape& shape, Element element);
std::vector<KernelText> flash_attention_1_texts(const Shape& shape, Element element, WorkPartition ways,
                                                const gpu::Tile& tile);
std::vector<KernelText> general_texts(const Shape& shape, Element element, const gpu::Tile& tile, bool exact_maximum);

}  // namespace flashtile::gpu_baselines
