// merge.h: partial results to the result of attending to all keys: lse = log sum_i exp(lse_i), O = sum_i exp(lse_i -
// lse) O_i. A row of O is made of the parts' rows in their order, in fp32. Of a part whose lse is -infinity nothing
// counts. out may be one of the parts, so a row's parts are all read before it is written.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/logarithm.h"
#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "shared/merge_params.h"

namespace flashtile {

// The greatest of a row's lse, NaN where one is NaN.
__device__ __forceinline__ float greatest_lse(const float* lses, Index stride, Index parts) {
    float m = -infinity();
#pragma unroll 4
    for (Index part = 0; part < parts; ++part) {
        const float lse = lses[part * stride];
        if (m == m && !(lse <= m)) m = lse;
    }
    return m;
}

// Neighbouring lanes share a row, each a piece of its columns in every `kSteps`.
template <KernelConfig config>
__device__ __forceinline__ void merge(const MergeParams& p) {
    using From = Math<config.element>;
    using To = Math<config.out_element>;
    constexpr int kColumns = config.head_dim_v, kPiece = merge_piece(config), kRowLanes = row_lanes(config);
    constexpr int kSteps = (kColumns + kRowLanes * kPiece - 1) / (kRowLanes * kPiece);
    static_assert(kColumns % kPiece == 0, "a piece may not reach past a row");
    const unsigned n = blockIdx.x * (config.warps * 32 / kRowLanes) + threadIdx.x / kRowLanes;
    if (n >= p.rows) return;
    const int first = static_cast<int>(threadIdx.x % kRowLanes) * kPiece;
    const Index h = n % p.heads, i = n / p.heads % p.seqlen, b = n / p.heads / p.seqlen;

    const float* lses = rows_of<const float>(p.lses, b, h, i);
    const auto* outs = rows_of<const typename From::Scalar>(p.outs, b, h, i);
    const float m = greatest_lse(lses, p.lses_stride_part, p.parts);
    float O[kSteps][kPiece], l = 0.0f;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int c = 0; c < kPiece; ++c) O[step][c] = -0.0f;  // to which a lone part's zeros of either sign are added
#pragma unroll 2
    for (Index part = 0; part < p.parts; ++part) {
        constexpr float kLog2e = 1.4426950408889634f;
        const float lse = lses[part * p.lses_stride_part];
        const bool counts = lse != -infinity();
        const float weight = ptx::exp2((lse - m) * kLog2e);
        l += counts ? weight : 0.0f;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            const int column = first + step * kRowLanes * kPiece;
            if (column >= kColumns) break;
            const auto piece = *reinterpret_cast<const Piece<typename From::Scalar, kPiece>*>(
                outs + part * p.outs_stride_part + column);
#pragma unroll
            for (int c = 0; c < kPiece; ++c)
                O[step][c] = counts ? fmaf(weight, From::to_float(piece.x[c]), O[step][c]) : O[step][c];
        }
    }

    const float inverse = 1.0f / l;
    auto* out = rows_of<typename To::Scalar>(p.out, b, h, i);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int column = first + step * kRowLanes * kPiece;
        if (column >= kColumns) break;
        Piece<typename To::Scalar, kPiece> piece;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) piece.x[c] = To::from_float(m == -infinity() ? 0.0f : O[step][c] * inverse);
        *reinterpret_cast<Piece<typename To::Scalar, kPiece>*>(out + column) = piece;
    }
    if (p.lse.data == nullptr) return;
    __syncwarp();  // lse may be one of lses, which the row's other lanes read
    if (first == 0)
        *rows_of<float>(p.lse, b, h, i) =
            m == infinity() || m == -infinity() ? m : static_cast<float>(static_cast<double>(m) + logarithm(l));
}

}  // namespace flashtile
