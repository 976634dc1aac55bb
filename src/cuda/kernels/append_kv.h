// append_kv.h: new keys and values to their places in a cache, keys rotated by their positions, and queries rotated
// likewise. Where a row goes and how a pair is rotated stands in shared/append_params.h. What is not rotated is copied,
// or quantised for a cache of e4m3.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/parts/common/sequence.h"
#include "cuda/kernels/ptx/dependent_launch.h"
#include "shared/append_params.h"
#include "shared/e4m3.h"

namespace flashtile {

template <KernelConfig config>
struct AppendRows {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    static constexpr int kPiece = config.vector_bytes / static_cast<int>(sizeof(Scalar));
    using Vector = Piece<Scalar, kPiece>;
    // An element of the cache.
    using Kept = typename Math<config.converts_kv ? Element::e4m3 : config.element>::Scalar;

    const AppendParams& p;

    __device__ __forceinline__ void append(Index row, Index h) const {
        const OwnedRow of = owned_row(p.cu_seqlens_k_new, p.batch, p.seqlen_k, p.rows_k, row);
        if (of.n < 0) return;
        const CachePlace place = place_of(p, of, row);
        if (place.page < 0) return;
        rotate(rows_of<const Scalar>(p.k, of.row_batch, h, of.row), rows_of<Kept>(p.k_cache, place.page, h, place.row),
               p.pairs != 0 ? key_position(p, of, row) : 0, inverse_scale(p.k_scale, of, place, h));
        if (p.v.data == nullptr) return;
        const Scalar* from = rows_of<const Scalar>(p.v, of.row_batch, h, of.row);
        Kept* to = rows_of<Kept>(p.v_cache, place.page, h, place.row);
        const float inverse = inverse_scale(p.v_scale, of, place, h);
        for (int n = static_cast<int>(lane_id()); n < p.head_dim_v / kPiece; n += kLanes)
            copy(to + n * kPiece, *at(from, n * kPiece), inverse);
    }

    __device__ __forceinline__ void query(Index row, Index h) const {
        const OwnedRow of = owned_row(p.cu_seqlens_q, p.batch, p.seqlen_q, p.rows_q, row);
        if (of.n < 0) return;
        rotate(rows_of<const Scalar>(p.q, of.row_batch, h, of.row), rows_of<Scalar>(p.q_out, of.row_batch, h, of.row),
               query_position(p, of, row), 1.0f);
    }

private:
    __device__ __forceinline__ float inverse_scale(const DeviceScales& scale, const OwnedRow& of,
                                                   const CachePlace& place, Index h) const {
        if (!config.converts_kv || scale.data == nullptr) return 1.0f;
        const Index outer = p.scale_blocks != 0 ? place.page : of.b, block = place.row >> p.scale_shift;
        return 1.0f / scale.data[outer * scale.stride_batch + h * scale.stride_head + block * scale.stride_block];
    }
    __device__ static __forceinline__ void copy(Scalar* to, const Vector& x, float) { *at(to, 0) = x; }
    __device__ static __forceinline__ void copy(unsigned char* to, const Vector& x, float inverse) {
        float values[kPiece];
#pragma unroll
        for (int c = 0; c < kPiece; ++c) values[c] = M::to_float(x.x[c]);
        store(to, values, inverse);
    }
    __device__ static __forceinline__ void store(Scalar* to, const float (&x)[kPiece], float) {
        Vector piece;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) piece.x[c] = M::from_float(x[c]);
        *at(to, 0) = piece;
    }
    __device__ static __forceinline__ void store(unsigned char* to, const float (&x)[kPiece], float inverse) {
        Piece<unsigned char, kPiece> piece;
#pragma unroll
        for (int c = 0; c < kPiece; ++c) piece.x[c] = static_cast<unsigned char>(float_to_e4m3(x[c] * inverse));
        *reinterpret_cast<Piece<unsigned char, kPiece>*>(to) = piece;
    }
    __device__ static __forceinline__ const Vector* at(const Scalar* row, int column) {
        return reinterpret_cast<const Vector*>(row + column);
    }
    __device__ static __forceinline__ Vector* at(Scalar* row, int column) {
        return reinterpret_cast<Vector*>(row + column);
    }

    // A warp's lanes take two pieces that hold whole pairs, or copy one piece. Each reads before it writes, and only it
    // touches these columns, so `to` may be `from`.
    template <class To>
    __device__ __forceinline__ void rotate(const Scalar* from, To* to, Index position, float inverse) const {
        const int turns = p.pairs / kPiece, copies = p.head_dim / kPiece - 2 * turns;
        for (int n = static_cast<int>(lane_id()); n < turns + copies; n += kLanes) {
            if (n >= turns) {
                const int column = (n - turns) * kPiece, after = column < p.rotary_begin ? 0 : 2 * p.pairs;
                copy(to + column + after, *at(from, column + after), inverse);
                continue;
            }
            const int first = p.rotary_begin + n * kPiece * (p.interleaved != 0 ? 2 : 1);
            const int second = first + (p.interleaved != 0 ? kPiece : p.pairs);
            const Vector x = *at(from, first), y = *at(from, second);
            const Scalar* const both[] = {x.x, y.x};
            float turned[2][kPiece];
#pragma unroll
            for (int c = 0; c < kPiece; ++c) {
                const int pair = n * kPiece + c;
                const float cos = angle(p.cos, position * p.cos_stride + pair);
                const float sin = angle(p.sin, position * p.sin_stride + pair);
                // interleaved, pairs are neighbours in the two pieces taken as one
                const bool next = p.interleaved != 0;
                const Scalar u = next ? both[2 * c / kPiece][2 * c % kPiece] : x.x[c];
                const Scalar v = next ? both[(2 * c + 1) / kPiece][(2 * c + 1) % kPiece] : y.x[c];
                const Pair to_pair = rotated({M::to_float(u), M::to_float(v)}, cos, sin);
                if (next) {
                    turned[2 * c / kPiece][2 * c % kPiece] = to_pair.x;
                    turned[(2 * c + 1) / kPiece][(2 * c + 1) % kPiece] = to_pair.y;
                } else {
                    turned[0][c] = to_pair.x;
                    turned[1][c] = to_pair.y;
                }
            }
            store(to + first, turned[0], inverse);
            store(to + second, turned[1], inverse);
        }
    }

    __device__ __forceinline__ float angle(const void* table, Index n) const {
        if (p.table_element == Element::fp32) return static_cast<const float*>(table)[n];
        const unsigned short bits = static_cast<const unsigned short*>(table)[n];
        return p.table_element == Element::fp16 ? ptx::unpack_fp16(bits) : ptx::unpack_bf16(bits);
    }
};

// A warp works on a head of a new row, or of a query.
template <KernelConfig config>
__device__ __forceinline__ void append_kv(const AppendParams& p) {
    ptx::wait_for_launch_before();
    ptx::let_next_launch_begin();
    const Index item = Index{blockIdx.x} * config.warps + warp_id(), keys = p.rows_k * p.kv_heads;
    const AppendRows<config> rows{p};
    if (item < keys)
        rows.append(item / p.kv_heads, item % p.kv_heads);
    else if (item - keys < p.rows_q * p.heads)
        rows.query((item - keys) / p.heads, (item - keys) % p.heads);
}

}  // namespace flashtile
