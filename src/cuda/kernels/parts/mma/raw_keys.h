// raw_keys.h: blocks of e4m3 keys and values in shared memory as they lie in memory, which cp.async brings ahead of
// time, and how one becomes a tile of 16-bit elements. Likewise queries, which are loaded once.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/parts/common/widen.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Bytes of one copy. cp.async takes 4 at least.
constexpr int raw_vector_bytes(const KernelConfig& c) {
    return c.vector_bytes / 2 >= 4 ? c.vector_bytes / 2 : 1;
}

template <KernelConfig config>
struct RawKeys {
    using Scalar = unsigned short;
    static constexpr int kPitch = raw_pitch(config.head_dim), kPitchV = raw_pitch(config.head_dim_v);
    static constexpr int kThreads = config.warps * 32;

    unsigned char* memory;  // the scales of the tile, where blocks have them, and behind them the stages

    __device__ __forceinline__ float* scales() const { return reinterpret_cast<float*>(memory); }
    __device__ __forceinline__ unsigned char* keys(int stage) const {
        return memory + scales_bytes(config) + stage * (raw_bytes(config) + scales_bytes(config));
    }
    __device__ __forceinline__ unsigned char* values(int stage) const { return keys(stage) + config.Bc * kPitch; }
    __device__ __forceinline__ float* scales(int stage) const {
        return reinterpret_cast<float*>(keys(stage) + raw_bytes(config));
    }

    // All threads widen a stage to a tile of K and one of V, and copy its scales.
    __device__ __forceinline__ void widen_block(int stage, Scalar* k, Scalar* v) const {
        widen_rows<config.head_dim, kPitch, pitch(config, config.head_dim)>(k, keys(stage));
        widen_rows<config.head_dim_v, kPitchV, pitch(config, config.head_dim_v)>(v, values(stage));
        if constexpr (config.scale_blocks)
            for (int n = static_cast<int>(threadIdx.x); n < 2 * config.Bc; n += kThreads)
                scales()[n] = scales(stage)[n];
    }

private:
    template <int kColumns, int kFromPitch, int kToPitch>
    __device__ static __forceinline__ void widen_rows(Scalar* to, const unsigned char* from) {
        constexpr int kCount = kColumns % 8 == 0 ? 8 : kColumns % 4 == 0 ? 4 : 1, kVectors = kColumns / kCount;
        constexpr int kAll = config.Bc * kVectors;
        // Loads of a thread: to the compiler, a store might be of what a later one reads. The widest heads leave no
        // registers for more than one.
        constexpr int kAtOnce = config.head_dim > 256 ? 1 : 4;
        for (int first = static_cast<int>(threadIdx.x); first < kAll; first += kAtOnce * kThreads) {
            const auto place = [&](int n, int pitch) { return n / kVectors * pitch + n % kVectors * kCount; };
            Piece<unsigned char, kCount> narrow[kAtOnce];
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n)
                if (const int vector = first + n * kThreads; kAll % (kAtOnce * kThreads) == 0 || vector < kAll)
                    narrow[n] =
                        *reinterpret_cast<const Piece<unsigned char, kCount>*>(from + place(vector, kFromPitch));
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n)
                if (const int vector = first + n * kThreads; kAll % (kAtOnce * kThreads) == 0 || vector < kAll)
                    widen<config.element, kCount>(to + place(vector, kToPitch), narrow[n].x);
        }
    }
};

// Rows that row_at(row) says, or zeros where it says null, widened to a tile.
template <Element kElement, int kRows, int kColumns, int kPitch, int kThreads, int kVectorBytes, class RowAt>
__device__ __forceinline__ void load_widened(unsigned short* tile, RowAt row_at) {
    constexpr int kCount = kVectorBytes / 2, kVectors = kColumns / kCount;
    for (int n = static_cast<int>(threadIdx.x); n < kRows * kVectors; n += kThreads) {
        const int row = n / kVectors, column = n % kVectors * kCount;
        unsigned short* const to = tile + row * kPitch + column;
        if (const unsigned char* const from = row_at(row); from != nullptr)
            widen<kElement, kCount>(to, from + column);
        else
            for (int c = 0; c < kCount; ++c) to[c] = 0;
    }
}

}  // namespace flashtile
