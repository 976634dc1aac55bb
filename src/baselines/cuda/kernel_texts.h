// kernel_texts.h: which kernels each of attention.h's makes: so that all can be compiled side by side before any is
// wanted, and looked at without a GPU.
#pragma once

#include <vector>

#include "baselines/cuda/attention.h"
#include "baselines/cuda/baseline_kernel.h"

namespace flashtile::gpu_baselines {

std::vector<KernelText> standard_texts(const Shape& shape, Element element, Passes passes);
std::vector<KernelText> flash_attention_1_texts(const Shape& shape, Element element, Passes passes, WorkPartition ways,
                                                const Tiles& tiles);
std::vector<KernelText> general_texts(const Shape& shape, Element element, Passes passes, const Tiles& tiles,
                                      bool exact_maximum);

}  // namespace flashtile::gpu_baselines
