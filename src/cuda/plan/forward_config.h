// forward_config.h: what the forward kernels of a problem have in common, with those beside them.
#pragma once

#include "cuda/jit/config_fields.h"
#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

inline KernelConfig forward_config(const Question& q, Kernel kernel) {
    KernelConfig c = q.config;
    c.kernel = kernel;
    c.lse = q.access.lse;
    c.lazy_rescale = !q.problem.batch_invariant && !q.problem.exact_max;
    return c;
}

// What tells a kernel beside the main one how long sequences are.
inline void take_lengths(KernelConfig& c, const KernelConfig& main) {
    c.packed = main.packed;
    c.cache = main.cache;
    c.seqused = main.seqused;
    c.seqused_q = main.seqused_q;
}

// What folds the parts of rows: of the problem's options it knows those of a row's end.
inline KernelConfig fold_config(const Question& q, const KernelConfig& main, Kernel kernel) {
    KernelConfig c = q.config;
    reset(c, FieldGroup::option);
    c.kernel = kernel;
    c.converts_kv = c.scale_blocks = false;
    take_lengths(c, main);
    c.sinks = main.sinks;
    c.dropout = main.dropout;
    c.shifted_dropout = false;  // it draws nothing
    c.lse = main.lse;
    c.warps = 4;
    return c;
}

}  // namespace flashtile::gpu
