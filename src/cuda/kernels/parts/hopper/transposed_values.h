// transposed_values.h: V of e4m3 for wgmma, which takes it with keys contiguous only: warps beside the producer read a
// block of V as TMA left it, and write it transposed to another stage of shared memory (sm_90).
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/ptx/ldmatrix.h"
#include "cuda/kernels/ptx/permute.h"
#include "cuda/kernels/ptx/stmatrix.h"
#include "cuda/kernels/ptx/tma.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// The transposed block: a row for each column of V, in chunks of 128 keys with the 128-byte swizzle. Of each 16 keys
// the order is 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15, which is how a lane has them in P (element.h), and how they come
// when pairs of bytes are transposed as 16-bit elements.
template <KernelConfig config>
struct TransposedValues {
    static constexpr int kRows = output_columns(config), kChunkKeys = chunk_of(Element::e4m3);
    // 32 keys and 16 columns are read and written at a time, by one instruction each.
    static constexpr int kColumnUnits = kRows / 16;
    static_assert(config.Bc % 32 == 0 && kRows % 32 == 0, "");

    // Warp `warp` of `kWarps` does its share, kAtOnce units of the same keys at a time, whose addresses differ by
    // constants: each would take some ten instructions otherwise, which wait for each other. Where TMA has brought keys
    // that no query sees, those outside [first, end) become zero.
    template <int kWarps, int kAtOnce>
    __device__ static __forceinline__ void transpose(unsigned from, unsigned to, int warp, int first, int end) {
        constexpr int kRun = kColumnUnits % kAtOnce == 0 ? kAtOnce : 2;
        constexpr unsigned kRunsOfKeys = kColumnUnits / kRun, kRuns = config.Bc / 32 * kRunsOfKeys;
        const unsigned lane = lane_id(), row = lane % 8, matrix = lane / 8;
        // Bytes of the even or the odd columns. An instruction that stores 8 rows takes four of either, whose pieces of
        // 16 bytes lie in different banks.
        const bool odd = lane >= 16;
        const unsigned mine = odd ? 0x7531 : 0x6420, others = odd ? 0x6420 : 0x7531;
        const unsigned to_row = 2 * row + ((row >= 4) != (matrix % 2 != 0) ? 1 : 0);  // of 16, which this lane stores
        const bool whole = !config.maps_hold_hidden_keys() || (first <= 0 && end >= config.Bc);
#pragma unroll 1
        for (unsigned run = static_cast<unsigned>(warp); run < kRuns; run += kWarps) {
            const unsigned key = run / kRunsOfKeys * 32, column = run % kRunsOfKeys * kRun * 16;
            // In units of 16 bytes the swizzle exchanges the places of a row's columns, and of a transposed row's keys.
            const unsigned read = from + column / kChunkKeys * config.Bc * kChunkRowBytes +
                                  (key + lane) * kChunkRowBytes + ((column % kChunkKeys) ^ (row * 16));
            const unsigned written = to + key / kChunkKeys * kRows * kChunkRowBytes +
                                     (column + to_row) * kChunkRowBytes +
                                     ((key % kChunkKeys + matrix / 2 * 16) ^ (to_row % 8 * 16));
            unsigned x[kRun][4];
#pragma unroll
            for (int n = 0; n < kRun; ++n) {
                ptx::ldmatrix_trans(x[n], read ^ (n * 16));
                if (!whole) hide(x[n], static_cast<int>(key), first, end);
            }
#pragma unroll
            for (int n = 0; n < kRun; ++n)
                ptx::stmatrix_x4(written + n * 16 * kChunkRowBytes,
                                 {ptx::permute(x[n][0], x[n][1], mine), ptx::permute(x[n][0], x[n][1], others),
                                  ptx::permute(x[n][2], x[n][3], mine), ptx::permute(x[n][2], x[n][3], others)});
        }
        ptx::fence_async_proxy();
    }

private:
    // Register n of a lane has two columns of the keys key + 8 n + 2 t and the next one.
    __device__ static __forceinline__ void hide(unsigned (&x)[4], int key, int first, int end) {
        const int own = key + static_cast<int>(lane_id()) % 4 * 2;
        const auto seen = [&](int j) { return j >= first && j < end; };
#pragma unroll
        for (int n = 0; n < 4; ++n)
            x[n] &= (seen(own + 8 * n) ? 0xFFFFu : 0u) | (seen(own + 8 * n + 1) ? 0xFFFF0000u : 0u);
    }
};

}  // namespace flashtile
