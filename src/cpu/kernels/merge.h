// merge.h: partial results to the result of attending to all keys: lse = log sum_i exp(lse_i), O = sum_i exp(lse_i -
// lse) O_i. A row of O is made of the parts' rows in their order, in fp32, and divided once. A part whose lse is
// -infinity is not read.
#pragma once

#include "core/merge_problem.h"
#include "cpu/isa/convert.h"
#include "cpu/kernels/head.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// The greatest of the parts' lse, NaN where one is NaN.
inline float greatest_lse(const float* lses, int64_t stride, int64_t parts) {
    float m = -__builtin_inff();
    for (int64_t part = 0; part < parts; ++part) {
        const float lse = lses[part * stride];
        if (m == m && !(lse <= m)) m = lse;
    }
    return m;
}

inline const void* element_of(const Operand& x, int64_t element) {
    return static_cast<const char*>(x.data) + element * (x.dtype == DType::fp32 ? 4 : 2);
}

// Rows [first, end) of out, counted over (batch, seqlen, heads).
inline void merge(const MergeProblem& p, const MergeOperands& x, int64_t first, int64_t end) {
    constexpr float kInfinity = __builtin_inff();
    alignas(64) float O[FLASHTILE_MAX_HEAD_DIM_V], row[FLASHTILE_MAX_HEAD_DIM];
    const int64_t d = p.head_dim;
    for (int64_t n = first; n < end; ++n) {
        const int64_t h = n % p.heads, i = n / p.heads % p.seqlen, b = n / p.heads / p.seqlen;
        const auto at = [&](const Operand& t) { return b * t.stride_batch + i * t.stride_row + h * t.stride_head; };
        const float* lses = static_cast<const float*>(x.lses.data) + at(x.lses);
        const float m = greatest_lse(lses, x.lses_stride_part, p.parts);
        float l = 0.0f;
        for (int64_t c = 0; c < d; ++c) O[c] = -0.0f;  // to which a lone part's zeros of either sign are added
        for (int64_t part = 0; part < p.parts; ++part) {
            const float lse = lses[part * x.lses_stride_part];
            if (lse == -kInfinity) continue;
            const float weight = exp2(broadcast((lse - m) * kLog2e))[0];
            l += weight;
            load_row(p.dtype, element_of(x.outs, at(x.outs) + part * x.outs_stride_part), d, row);
            for (int64_t c = 0; c < d; ++c) O[c] += weight * row[c];
        }
        const float inverse = 1.0f / l;
        for (int64_t c = 0; c < d; ++c) O[c] = m == -kInfinity ? 0.0f : O[c] * inverse;
        store_row(p.out_dtype, O, d, const_cast<void*>(element_of(x.out, at(x.out))));
        if (x.lse)
            static_cast<float*>(x.lse.data)[at(x.lse)] =
                m == kInfinity || m == -kInfinity
                    ? m
                    : static_cast<float>(static_cast<double>(m) + __builtin_log(static_cast<double>(l)));
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
