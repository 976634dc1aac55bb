// combine_shares.h: the end of a forward pass of which thread blocks had equal shares of the keys. The parts of a row
// are folded as Algorithm 1 folds blocks of keys: m is the greatest, and l and O are scaled to it. Neighbouring lanes
// share a row's columns. Parts are far away in memory and may be many, and so several such groups of lanes may share a
// row's parts (KernelParams::fold_groups). A row that was not divided has its result already.
#pragma once

#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/parts/common/row_end.h"
#include "cuda/kernels/parts/schedule/row_parts.h"
#include "cuda/kernels/ptx/dependent_launch.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

// Some columns of a row over some of its parts. All parts' m are finite: a row that saw no key has the softmax's first.
template <KernelConfig config, int kPiece>
struct FoldedParts {
    float m = -infinity(), l = 0.0f, O[kPiece] = {};

    // Takes parts first, first + step and so on in, several at a time: all their loads are on their way together.
    __device__ __forceinline__ void fold(const KernelParams& p, const RowParts<config>& parts, int first, int step,
                                         int column) {
        const float2* const ml = reinterpret_cast<const float2*>(p.ws_part_ml);
        for (const int count = parts.count(); first < count; first += step * kPartsAtOnce) {
            float2 of[kPartsAtOnce];
            Columns piece[kPartsAtOnce];
#pragma unroll
            for (int n = 0; n < kPartsAtOnce; ++n) {
                of[n] = make_float2(-infinity(), 0.0f);
                if (first + n * step >= count) continue;
                const Index part = parts[first + n * step];
                of[n] = ml[part];
                piece[n] = *reinterpret_cast<const Columns*>(p.ws_part_o + part * config.head_dim_v + column);
            }
            float greatest = m;
#pragma unroll
            for (int n = 0; n < kPartsAtOnce; ++n) greatest = fmaxf(greatest, of[n].x);
            raise(p, greatest);
#pragma unroll
            for (int n = 0; n < kPartsAtOnce; ++n) {
                if (first + n * step >= count) continue;
                add(p, of[n], piece[n]);
            }
        }
    }

    // Adds the groups behind the first, whose own this is.
    __device__ __forceinline__ void add_groups(const KernelParams& p, const float2* ml, const float* sums, int groups) {
        float greatest = m;
        for (int n = 1; n < groups; ++n) greatest = fmaxf(greatest, ml[n].x);
        raise(p, greatest);
        for (int n = 1; n < groups; ++n) {
            const Columns piece = *reinterpret_cast<const Columns*>(sums + n * config.head_dim_v);
            add(p, ml[n], piece);
        }
    }

private:
    using Columns = Piece<float, kPiece>;

    __device__ static __forceinline__ float alpha(const KernelParams& p, float m, float to) {
        const float below = m - to;  // in the units of m
        return ptx::exp2(own_units<config>() ? below * log2_factor<config>(p) : below);
    }

    // m becomes `greatest`, to which l and O are scaled.
    __device__ __forceinline__ void raise(const KernelParams& p, float greatest) {
        const float own = alpha(p, m, greatest);
        l *= own;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) O[c] *= own;
        m = greatest;
    }
    // Adds what has m and l, and O as it stands; that m is at most this one.
    __device__ __forceinline__ void add(const KernelParams& p, float2 ml, const Columns& piece) {
        const float its = alpha(p, ml.x, m);
        l = fmaf(ml.y, its, l);
#pragma unroll
        for (int c = 0; c < kPiece; ++c) O[c] = fmaf(piece.x[c], its, O[c]);
    }
};

template <KernelConfig config>
__device__ __forceinline__ void combine_shares(const KernelParams& p) {
    using M = Math<output_element(config)>;
    using Scalar = typename M::Scalar;
    constexpr int kPiece = config.vector_bytes / size_of(config.element), kColumns = config.head_dim_v;
    constexpr int kGroups = combine_groups(config), kGroupLanes = config.warps * 32 / kGroups;
    ptx::wait_for_launch_before();
    ptx::let_next_launch_begin();
    const int lane = static_cast<int>(threadIdx.x) % kGroupLanes, place = static_cast<int>(threadIdx.x) / kGroupLanes;
    const int group = place & (p.fold_groups - 1);
    // 32 bits: divisions take long
    const unsigned n = (blockIdx.x * kGroups + place) >> (__ffs(p.fold_groups) - 1);
    const unsigned heads = static_cast<unsigned>(p.heads), queries = static_cast<unsigned>(p.part_queries);
    const unsigned h = n % heads, i = n / heads % queries, b = n / heads / queries;
    const bool is_row = b < static_cast<unsigned>(p.batch);
    const Sequence seq = Sequence::make<config>(p, is_row ? b : 0, h);
    const auto parts = is_row && i < seq.seqlen_q ? RowParts<config>(p, seq, static_cast<int>(i)) : RowParts<config>();
    const int groups = parts.complete ? 0 : smaller(p.fold_groups, parts.count());

    float* const sums = reinterpret_cast<float*>(shared_memory);
    float2* const ml = reinterpret_cast<float2*>(sums + kGroups * kColumns);
    for (int first = 0; first < kColumns; first += kGroupLanes * kPiece) {
        const int column = first + lane * kPiece;
        const bool folds = group < groups && column < kColumns;
        FoldedParts<config, kPiece> row;
        if (folds) row.fold(p, parts, group, groups, column);
        if (p.fold_groups > 1) {  // the first group adds what the others have
            if (folds) {
#pragma unroll
                for (int c = 0; c < kPiece; ++c) sums[place * kColumns + column + c] = row.O[c];
                if (column == 0) ml[place] = make_float2(row.m, row.l);
            }
            __syncthreads();  // all groups' sums are there
            if (folds && group == 0) row.add_groups(p, ml + place, sums + place * kColumns + column, groups);
        }
        if (!folds || group != 0) continue;
        const float factor = row_factor<config>(p, h, row.m, row.l);
        Piece<Scalar, kPiece> piece;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) piece.x[c] = M::from_float(row.O[c] * factor);
        *reinterpret_cast<Piece<Scalar, kPiece>*>(rows_of<Scalar>(p.out, seq.batch_row, h, seq.first_q + i) + column) =
            piece;
        if (config.lse && column == 0)
            rows_of<float>(p.lse, seq.batch_row, h, seq.first_q)[i * p.lse.stride_row] =
                static_cast<float>(row_lse<config>(p, h, row.m, row.l));
    }
}

}  // namespace flashtile
