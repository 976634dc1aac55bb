// rabe_staats.h: the algorithm of Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (arXiv 2112.05682), in
// fp32. Queries and keys are cut in chunks. For a chunk of queries each chunk of keys gives a summary: its part of the
// output, not divided yet, its sum of weights and its largest score. All summaries are kept until they are combined,
// where FlashAttention keeps one O. Backward is what gradient checkpointing makes of that: everything is computed again
// from q, k and v, nothing is saved by forward.
#pragma once

#include "baselines/standard_attention.h"

namespace flashtile::baselines {

// The paper's defaults.
struct Chunks {
    std::int64_t queries = 1024;
    std::int64_t keys = 4096;
};

// Forward runs chunks of queries in parallel, backward heads.
void rabe_staats_forward(const Shape& shape, Chunks chunks, const float* q, const float* k, const float* v, float* out,
                         int threads);
void rabe_staats_backward(const Shape& shape, Chunks chunks, const float* q, const float* k, const float* v,
                          const float* dout, float* dq, float* dk, float* dv, int threads);

}  // namespace flashtile::baselines
