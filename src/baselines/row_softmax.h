// row_softmax.h: the softmax of a row of scores and its derivative, and their steps, vectorised, so that the baselines
// lose to memory traffic (which is the papers' point) and not to a slow exponential.
#pragma once

#include <cstdint>

namespace flashtile::baselines {

// -inf where there is no column.
float row_max(const float* s, std::int64_t columns);

// p = exp(s - m), for s up to m; returns the sum. p may be s.
float exp_row(const float* s, float m, float* p, std::int64_t columns);

void scale_row(float factor, float* x, std::int64_t columns);
void add_row(float factor, const float* x, float* y, std::int64_t columns);  // y += factor x
void multiply_row(const float* factors, float* x, std::int64_t columns);
float dot_row(const float* x, const float* y, std::int64_t columns);

// ds = p o (dp - D). ds may be dp.
void score_gradient_row(const float* p, const float* dp, float D, float* ds, std::int64_t columns);

// p = softmax(s) over the first `visible` of `columns` entries; the others, masked with -inf, become 0. p may be s.
void softmax_row(const float* s, float* p, std::int64_t visible, std::int64_t columns);

// ds = p o (dp - sum_l p_l dp_l): the gradient of the softmax. ds may be dp.
void softmax_backward_row(const float* p, const float* dp, float* ds, std::int64_t columns);

// Keys that query i may see when causal is aligned bottom-right.
inline std::int64_t causal_keys(std::int64_t i, std::int64_t seqlen_q, std::int64_t seqlen_k) {
    const std::int64_t last = i + seqlen_k - seqlen_q;
    return last < 0 ? 0 : last + 1;
}

}  // namespace flashtile::baselines
