// standard_attention.h: standard attention, which materialises S and P, in fp32: what FlashAttention is compared with.
// Names are those of the FlashAttention paper (Algorithm 0, and Algorithm 3 in its appendix B.4).
#pragma once

#include <cstdint>

namespace flashtile::baselines {

// Matrices are contiguous: q, out (batch, seqlen_q, heads, head_dim), k, v (batch, seqlen_k, kv_heads, head_dim),
// P (batch, heads, seqlen_q, seqlen_k). heads is a multiple of kv_heads. Causal is aligned bottom-right.
struct Shape {
    std::int64_t batch = 1;
    std::int64_t seqlen_q = 0;
    std::int64_t seqlen_k = 0;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t head_dim = 0;
    bool causal = false;
    float scale = 1.0f;
};

// Algorithm 0. P is written for standard_backward; where it is null, a thread keeps the P of one head at a time.
void standard_forward(const Shape& shape, const float* q, const float* k, const float* v, float* out, float* P,
                      int threads);

// Algorithm 3, from the P that standard_forward wrote. Where P is null it is computed again, head by head: slower, but
// it fits where batch * heads * seqlen_q * seqlen_k numbers do not.
void standard_backward(const Shape& shape, const float* q, const float* k, const float* v, const float* P,
                       const float* dout, float* dq, float* dk, float* dv, int threads);

}  // namespace flashtile::baselines
