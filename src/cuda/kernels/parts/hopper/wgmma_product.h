// wgmma_product.h: matrix products of one warpgroup on tiles as TMA's 128-byte swizzle leaves them. The accumulators of
// a warp are those of mma m16n8 (element.h), 16 rows a warp. All products are asynchronous: the caller fences before,
// commits after, and waits.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/ptx/warpgroup.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n128.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n160.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n192.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n224.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n256.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n64.h"
#include "cuda/kernels/ptx/wgmma_e4m3_n96.h"
#include "cuda/kernels/ptx/wgmma_n128.h"
#include "cuda/kernels/ptx/wgmma_n192.h"
#include "cuda/kernels/ptx/wgmma_n256.h"
#include "cuda/kernels/ptx/wgmma_n32.h"
#include "cuda/kernels/ptx/wgmma_n64.h"
#include "cuda/kernels/ptx/wgmma_n80.h"

namespace flashtile {

// The matrix descriptor of a tile at a shared address: 128-byte swizzle; eight rows of 128 bytes are 1024 bytes apart;
// `chunk_bytes` from one chunk of 64 columns to the next, which only operands with contiguous columns use.
__device__ __forceinline__ unsigned long long tile_descriptor(unsigned address, int chunk_bytes) {
    constexpr unsigned long long kSwizzle128 = 1ull << 62, kEightRows = static_cast<unsigned long long>(1024 >> 4)
                                                                        << 32;
    return kSwizzle128 | kEightRows | static_cast<unsigned long long>(chunk_bytes >> 4) << 16 | (address >> 4 & 0x3FFF);
}

template <int NT>
__device__ __forceinline__ float (&flat(Fragments<1, NT>& x))[4 * NT] {
    return reinterpret_cast<float(&)[4 * NT]>(x.c);
}

template <int NT>
__device__ __forceinline__ void pin(Fragments<1, NT>& x) {
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) ptx::pin(x.c[0][n][e]);
}

// Of the inner dimension, what one instruction multiplies: 32 bytes of a row.
constexpr int inner_columns(Element element) {
    return 32 / size_of(element);
}

// S = A B^T, or S += A B^T, for this warpgroup's 64 rows of A; A is kRowsA high, B kRowsB; both have kColumns columns.
template <Element kElement, int kColumns, int kRowsA, int kRowsB, int NT>
__device__ __forceinline__ void start_scores(Fragments<1, NT>& s, unsigned a, unsigned b, bool add = false) {
    const unsigned long long from_a = tile_descriptor(a, 16), from_b = tile_descriptor(b, 16);
    constexpr int kColumnsOfChunk = chunk_of(kElement);
#pragma unroll
    for (int k = 0; k < kColumns; k += inner_columns(kElement)) {
        const int step = k % kColumnsOfChunk * size_of(kElement);  // bytes within a chunk
        const unsigned long long da = from_a + ((k / kColumnsOfChunk * kRowsA * kChunkRowBytes + step) >> 4);
        const unsigned long long db = from_b + ((k / kColumnsOfChunk * kRowsB * kChunkRowBytes + step) >> 4);
        if constexpr (kElement == Element::e4m3)
            ptx::wgmma_shared_e4m3(flat(s), da, db, add || k != 0);
        else if constexpr (kElement == Element::bf16)
            ptx::wgmma_shared_bf16(flat(s), da, db, add || k != 0);
        else
            ptx::wgmma_shared_fp16(flat(s), da, db, add || k != 0);
    }
}

// S = A B^T, with kColumns columns of A in registers.
template <Element kElement, int kColumns, int kRowsB, int NT, int KT>
__device__ __forceinline__ void start_scores(Fragments<1, NT>& s,
                                             const typename Math<kElement>::template Left<1, KT>& a, unsigned b) {
    const unsigned long long from_b = tile_descriptor(b, 16);
    constexpr int kColumnsOfChunk = chunk_of(kElement), kStep = inner_columns(kElement);
#pragma unroll
    for (int k = 0; k < kColumns; k += kStep) {
        const unsigned long long db =
            from_b + ((k / kColumnsOfChunk * kRowsB * kChunkRowBytes + k % kColumnsOfChunk * size_of(kElement)) >> 4);
        if constexpr (kElement == Element::e4m3)
            ptx::wgmma_registers_rows_e4m3(flat(s), a.a[0][k / kStep], db, k != 0);
        else if constexpr (kElement == Element::bf16)
            ptx::wgmma_registers_rows_bf16(flat(s), a.a[0][k / kStep], db, k != 0);
        else
            ptx::wgmma_registers_rows_fp16(flat(s), a.a[0][k / kStep], db, k != 0);
    }
}

// O += P B, P in registers with kRowsB columns, B [kRowsB][columns of O]; of e4m3, B transposed (transposed_values.h).
template <Element kElement, int kRowsB, int NT, int OT>
__device__ __forceinline__ void start_output(Fragments<1, OT>& o,
                                             const typename Math<kElement>::template Left<1, NT>& p, unsigned b) {
    if constexpr (kElement == Element::e4m3) {
        constexpr int kKeys = chunk_of(kElement), kBytesChunk = OT * 8 * kChunkRowBytes,
                      kStep = inner_columns(kElement);
        const unsigned long long from_b = tile_descriptor(b, 16);
#pragma unroll
        for (int k = 0; k < kRowsB; k += kStep)
            ptx::wgmma_registers_rows_e4m3(flat(o), p.a[0][k / kStep],
                                           from_b + ((k / kKeys * kBytesChunk + k % kKeys) >> 4), 1);
    } else {
        const unsigned long long from_b = tile_descriptor(b, kRowsB * kChunkRowBytes);
#pragma unroll
        for (int k = 0; k < kRowsB; k += 16) {
            const unsigned long long db = from_b + (k * kChunkRowBytes >> 4);
            if constexpr (kElement == Element::bf16)
                ptx::wgmma_registers_bf16(flat(o), p.a[0][k / 16], db, 1);
            else
                ptx::wgmma_registers_fp16(flat(o), p.a[0][k / 16], db, 1);
        }
    }
}

// C = A^T B, or C += A^T B, with A [kRows][64 columns of a chunk] and B [kRows][columns of C], both stored as rows.
template <Element kElement, int kRows, int NT>
__device__ __forceinline__ void start_transposed(Fragments<1, NT>& c, unsigned a, unsigned b, bool add = false) {
    const unsigned long long from_a = tile_descriptor(a, 16), from_b = tile_descriptor(b, kRows * kChunkRowBytes);
#pragma unroll
    for (int k = 0; k < kRows; k += 16) {
        if constexpr (kElement == Element::bf16)
            ptx::wgmma_shared_transposed_bf16(flat(c), from_a + (k * kChunkRowBytes >> 4),
                                              from_b + (k * kChunkRowBytes >> 4), add || k != 0);
        else
            ptx::wgmma_shared_transposed_fp16(flat(c), from_a + (k * kChunkRowBytes >> 4),
                                              from_b + (k * kChunkRowBytes >> 4), add || k != 0);
    }
}

}  // namespace flashtile
