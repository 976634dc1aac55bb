// one_head.h: the step that forward and a backward without P share: S and P of one head.
#pragma once

#include "baselines/head.h"

namespace flashtile::baselines {

// S = scale * Q K^T, P = softmax(mask(S)), both N x N in memory. P takes the place of S.
void scores_to_probabilities(const Shape& shape, Matrix<const float> Q, Matrix<const float> K, Matrix<float> P,
                             int threads);

}  // namespace flashtile::baselines
