// shape.h: what the baselines on a GPU have in common: the shapes that they take, and a shape as kernels get it.
#pragma once

#include <string>

#include "baselines/cuda/attention.h"
#include "shared/kernel_params.h"

namespace flashtile::gpu_baselines {

// Throws UNSUPPORTED for a shape that no baseline takes, or whose head dimension is no multiple of `multiple` up to
// `widest`.
void require(const Shape& shape, Element element, int multiple, int widest);

// The config of a kernel for the shape, but for its tile.
KernelConfig config_of(const Shape& shape, Element element);
void set_tile(KernelConfig& config, const gpu::Tile& tile);

// As C++.
std::string to_string(const WorkPartition& ways);

// A contiguous (batch, seqlen, heads, head_dim) tensor, and KernelParams of all operands.
DeviceTensor tensor_of(const Shape& shape, const void* data, std::int64_t seqlen);
KernelParams params_of(const Shape& shape, const Operands& operands);

inline std::int64_t blocks_of(std::int64_t length, std::int64_t rows) {
    return (length + rows - 1) / rows;
}

}  // namespace flashtile::gpu_baselines
