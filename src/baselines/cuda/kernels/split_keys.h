// split_keys.h: how warps that split the keys of a block add up what each has (FlashAttention-2 paper, section 3.3):
// through shared memory, with barriers, which is what section 3.3 does away with.
#pragma once

#include "baselines/cuda/kernels/work_partition.h"
#include "cuda/kernels/parts/common/softmax.h"
#include "cuda/kernels/parts/common/warp_grid.h"

namespace flashtile {

template <KernelConfig config, bool kUsed = true>
struct SplitKeys {
    static constexpr int kRowTiles = config.Br / 16;
    static constexpr int kColumnTiles = padded(config, config.head_dim) / 8;
    static constexpr int kPartTiles = exchanged_columns(config) / 8;
    // Every warp has a share of all rows. Added up, each warp owns some rows.
    using OwnedGrid = WarpGrid<config.Br, padded(config, config.head_dim), config.warps, config.warps>;
    using Owned = typename OwnedGrid::Accumulators;

    float4* shares;            // [warp][row tile][column tile of the part][lane]
    float *maxima, *row_sums;  // [warp][row]

    __device__ __forceinline__ explicit SplitKeys(unsigned char* memory)
        : shares(reinterpret_cast<float4*>(memory)),
          maxima(reinterpret_cast<float*>(shares + config.warps * kRowTiles * kPartTiles * kLanes)),
          row_sums(maxima + config.warps * config.Br) {}

    // Leaves the maxima of this warp's scores. After a barrier all warps may ask for maxima_of.
    template <int NT>
    __device__ __forceinline__ void write_maxima(const Fragments<kRowTiles, NT>& s) const {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float highest = -infinity();
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    highest = fmaxf(highest, fmaxf(s.c[m][n][2 * half], s.c[m][n][2 * half + 1]));
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
                highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
                if (lane_id() % 4 == 0) maxima[warp_id() * config.Br + Place::row(m, 2 * half)] = highest;
            }
    }

    // The greatest score of each of the rows from row0 on, in the form of scores, for Softmax::find_maximum.
    template <int MT>
    __device__ __forceinline__ Fragments<MT, 1> maxima_of(int row0) const {
        Fragments<MT, 1> greatest;
        each_row<MT>([&](int m, int half) {
            const float x =
                over_warps(maxima + row0 + Place::row(m, 2 * half), [](float a, float b) { return fmaxf(a, b); });
            greatest.c[m][0][2 * half] = greatest.c[m][0][2 * half + 1] = x;
        });
        return greatest;
    }

    // Leaves the row sums of this warp's P.
    template <class RowSums>
    __device__ __forceinline__ void write_sums(const RowSums& sum) const {
        each_row<kRowTiles>([&](int m, int half) {
            float x = sum.of[m][half];
            x += __shfl_xor_sync(~0u, x, 1);
            x += __shfl_xor_sync(~0u, x, 2);
            if (lane_id() % 4 == 0) row_sums[warp_id() * config.Br + Place::row(m, 2 * half)] = x;
        });
    }
    __device__ __forceinline__ float sum_of(int row) const {
        return over_warps(row_sums + row, [](float a, float b) { return a + b; });
    }

    // Adds to each warp's own rows what share_of gives in all warps: share_of(column, part) makes this warp's share of
    // all rows of the columns from `column` on, a tile of them being 8. Begins with a barrier after the first part is
    // written.
    template <class ShareOf>
    __device__ __forceinline__ void add_up(Owned& sum, ShareOf share_of) const {
        const int own_tile = static_cast<int>(warp_id()) * OwnedGrid::MT;
#pragma unroll
        for (int first = 0; first < kColumnTiles; first += kPartTiles) {
            if (first > 0) __syncthreads();  // the part before has been read
            Fragments<kRowTiles, kPartTiles> part;
            share_of(first * 8, part);
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
                for (int n = 0; n < kPartTiles; ++n)
                    *place(warp_id(), m, n) =
                        make_float4(part.c[m][n][0], part.c[m][n][1], part.c[m][n][2], part.c[m][n][3]);
            __syncthreads();  // all warps have written
            // A warp's share at a time: more loads on their way would take registers that there are not.
#pragma unroll 1
            for (unsigned warp = 0; warp < config.warps; ++warp)
#pragma unroll
                for (int m = 0; m < OwnedGrid::MT; ++m)
#pragma unroll
                    for (int n = 0; n < kPartTiles; ++n) {
                        const float4 x = *place(warp, own_tile + m, n);
                        float(&c)[4] = sum.c[m][first + n];
                        c[0] += x.x, c[1] += x.y, c[2] += x.z, c[3] += x.w;
                    }
        }
    }

private:
    __device__ __forceinline__ float4* place(unsigned warp, int m, int n) const {
        return shares + ((warp * kRowTiles + m) * kPartTiles + n) * kLanes + lane_id();
    }

    template <class Fold>
    __device__ static __forceinline__ float over_warps(const float* row, Fold fold) {
        float x = row[0];
#pragma unroll
        for (int warp = 1; warp < config.warps; ++warp) x = fold(x, row[warp * config.Br]);
        return x;
    }

    template <int MT, class Body>
    __device__ static __forceinline__ void each_row(Body body) {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) body(m, half);
    }
};

// Where warps split queries, they have nothing to add up.
template <KernelConfig config>
struct SplitKeys<config, false> {
    __device__ __forceinline__ explicit SplitKeys(unsigned char*) {}
};

}  // namespace flashtile
