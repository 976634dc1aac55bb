// one_head.h: standard attention of one head. There are definitions for Uncounted, and for Counted on one thread.
#pragma once

#include "baselines/memory.h"

namespace flashtile::baselines {

// Lines 1 and 2 of Algorithm 0, which a backward without P has too: S = scale * Q K^T, P = softmax(mask(S)), both N x N
// in slow memory. P takes the place of S.
template <class Count>
void scores_to_probabilities(const Shape& shape, const Slow<const float>& Q, const Slow<const float>& K,
                             const Slow<float>& P, int threads, Memory<Count> memory);

struct StandardForward {
    Slow<const float> Q, K, V;
    Slow<float> O, P;
};
template <class Count>
void standard_forward(const Shape& shape, const StandardForward& head, int threads, Memory<Count> memory);

struct StandardBackward {
    Slow<const float> Q, K, V, P, dO;
    Slow<float> dQ, dK, dV, dP;
    bool adds_to_keys = false;  // to the dK and dV of another head that shares K and V
};
template <class Count>
void standard_backward(const Shape& shape, const StandardBackward& head, int threads, Memory<Count> memory);

}  // namespace flashtile::baselines
