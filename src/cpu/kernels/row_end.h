// row_end.h: what a row of the softmax comes to once its keys are seen: LSE, and the share that a sink takes of the
// probabilities.
#pragma once

#include "cpu/kernels/head.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// m log-units + log l; minus infinity where l is 0, of a query that saw no key. One unit of m is `unit` of a score.
inline double lse_of(float m, double unit, float l) {
    if (l == 0.0f) return -__builtin_inf();
    return static_cast<double>(m) * unit + __builtin_log(static_cast<double>(l));
}

// Adds a sink's score to the denominator: lse = log(e^lse + e^sink). Returns what is left of each probability, 1 / (1 +
// e^(sink - lse)).
inline float with_sink(double& lse, double sink) {
    const double above = lse - sink;
    const double other = __builtin_exp(above < 0 ? above : -above);  // the smaller of the two, if the larger is 1
    lse = (above < 0 ? sink : lse) + __builtin_log1p(other);
    return static_cast<float>((above < 0 ? other : 1.0) / (1.0 + other));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
