// tensor_map.h: makes the tensor maps, which describe a launch's operands to TMA.
#pragma once

#include "core/problem.h"
#include "cuda/plan/plan.h"
#include "shared/kernel_params.h"

namespace flashtile::gpu {

// Batch entries of k and v: sequences, pages, or rows of a cache.
inline std::int64_t runs_of_keys(const Problem& p) {
    return p.cache ? p.pages : p.runs();
}

// True if TMA can read the operands as they lie: aligned to 16 bytes, without a broadcast dimension, of few enough
// rows.
bool can_map(const Problem& problem, const Operands& operands);

// True if TMA can read the bias: it also has rows and columns of its own, and the inputs' type.
bool can_map_bias(const Problem& problem, const Operands& operands);

// Fills in the maps that a launch names, and the rows at which these maps start.
void set_maps(KernelParams& params, const Launch& launch, const Problem& problem, const Operands& operands);

}  // namespace flashtile::gpu
