// backward_sinks.h: the gradient of an attention sink. A sink is a score without a value, so of dS = P (dP - D + dlse)
// its row has P_sink (dlse - D), and dsink is the sum over all queries of its head. LSE counts the sink, so that the
// other gradients need not know of it.
#pragma once

#include "cpu/kernels/head.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline void sum_dsink(const Problem& p, const Operands& x, const cpu::BackwardState& state, int64_t h) {
    const Rows to = rows_of(x.dsinks, 0, h, 0);
    if (!to) return;
    double sum = 0.0;
    for (int64_t b = 0; b < p.batch; ++b) {
        const Head head = make_head(p, x, b, h);
        const int64_t first = (h * state.panels + head.first_unit(kPanel)) * kPanel;
        for (int64_t i = first; i < first + head.seqlen_q; ++i)  // state.D is D - dlse
            sum -= __builtin_exp(static_cast<double>(head.sink) - static_cast<double>(state.lse[i])) *
                   static_cast<double>(state.D[i]);
    }
    const float dsink = static_cast<float>(sum);
    store_row(to.dtype, &dsink, 1, to.data);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
