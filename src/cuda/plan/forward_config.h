// forward_config.h: what the forward kernels of a problem have in common.
#pragma once

#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

inline KernelConfig forward_config(const Question& q, Kernel kernel) {
    KernelConfig c = q.config;
    c.kernel = kernel;
    c.lse = q.access.lse;
    c.lazy_rescale = !q.problem.batch_invariant && !q.problem.exact_max;
    return c;
}

}  // namespace flashtile::gpu
