// scaled_rows.h: rows of a head as the kernels that quantise hold them: some neighbouring lanes share a row, each with
// pieces of its columns in fp32. Rotation and M are done in the order of operations of shared/append_params.h and
// shared/e4m3.h, so that the bits are those of the CPU.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/piece.h"
#include "shared/quantize_params.h"

namespace flashtile {

// A block of rows of a head of a sequence.
struct RowBlock {
    Index b, h;
    Index first, count;  // of the sequence's rows; count < 0: no such block
    Index outer, at;     // where the first one lies: row `at` of batch `outer`
    Index number;        // of the sequence's blocks, or of all packed ones

    // Number n of all, head by head fastest. There are no more heads and blocks than thread blocks, and 32 bits hold
    // them: division by 64 bits would take as long as a row.
    template <int kRows>
    __device__ static __forceinline__ RowBlock of(const QuantizeParams& p, unsigned n) {
        const unsigned heads = static_cast<unsigned>(p.heads), block = n / heads;
        const Index h = n - block * heads;
        if (p.cu_seqlens.data == nullptr) {
            const unsigned blocks = static_cast<unsigned>(p.blocks), of_batch = block / blocks;
            const Index b = of_batch, number = block - of_batch * blocks, first = number * kRows;
            return {b, h, first, least(p.seqlen - first, kRows), b, first, number};
        }
        Index before = 0;
        for (Index b = 0; b < p.batch; ++b) {
            const Index start = clamped(value_at(p.cu_seqlens, b), 0, p.total);
            const Index length = clamped(value_at(p.cu_seqlens, b + 1), start, p.total) - start;
            const Index own = (length + kRows - 1) / kRows;
            if (block < before + own) {
                const Index first = (block - before) * kRows;
                return {b, h, first, least(length - first, kRows), 0, start + first, block};
            }
            before += own;
        }
        return {0, h, 0, -1, 0, 0, block};
    }

private:
    __device__ static __forceinline__ Index least(Index a, Index b) { return a < b ? a : b; }
};

// How rows are rotated: not at all; pieces by pieces of angles of a type, where all pieces are whole in both halves and
// angles aligned; or column by column.
enum class Rotation { none, pieces_fp32, pieces_fp16, pieces_bf16, columns };

template <KernelConfig config>
struct ScaledRow {
    static constexpr int kPiece = quantize_piece(config), kLanesOfRow = quantize_row_lanes(config);
    static constexpr int kPieces = quantize_pieces(config);
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;

    float x[kPieces][kPiece];

    // The lane's place among those of its row, and the first column of its n-th piece.
    __device__ static __forceinline__ int lane_of_row() { return static_cast<int>(lane_id()) % kLanesOfRow; }
    __device__ static __forceinline__ int column(int n) { return (n * kLanesOfRow + lane_of_row()) * kPiece; }

    __device__ __forceinline__ void load(const Scalar* row) {
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
            Piece<Scalar, kPiece> piece{};
            if (row != nullptr && column(n) < config.head_dim)
                piece = *reinterpret_cast<const Piece<Scalar, kPiece>*>(row + column(n));
#pragma unroll
            for (int e = 0; e < kPiece; ++e) x[n][e] = M::to_float(piece.x[e]);
        }
    }

    // All lanes of the warp call it, with the position of their own row.
    template <Rotation kRotation>
    __device__ __forceinline__ void rotate(const QuantizeParams& p, Index position) {
        if constexpr (kRotation == Rotation::columns)
            rotate_columns(p, position);
        else if constexpr (kRotation == Rotation::pieces_fp32)
            rotate_pieces<float>(p, position, [](float angle) { return angle; });
        else if constexpr (kRotation == Rotation::pieces_fp16)
            rotate_pieces<unsigned short>(p, position, [](unsigned short bits) { return ptx::unpack_fp16(bits); });
        else if constexpr (kRotation == Rotation::pieces_bf16)
            rotate_pieces<unsigned short>(p, position, [](unsigned short bits) { return ptx::unpack_bf16(bits); });
    }

    // Of rows in which a lane has one piece: its partners are a piece of another lane's.
    template <class Angle, class ToFloat>
    __device__ __forceinline__ void rotate_pieces(const QuantizeParams& p, Index position, ToFloat to_float) {
        static_assert(kPieces == 1, "");
        using Angles = Piece<Angle, kPiece>;
        const int own = column(0) - p.rotary_begin;
        const bool second = own >= p.pairs;
        const int first = (second ? own - p.pairs : own + p.pairs) + p.rotary_begin;
        float other[kPiece];
#pragma unroll
        for (int e = 0; e < kPiece; ++e)
            other[e] = __shfl_sync(~0u, x[0][e], (first < 0 ? 0 : first) / kPiece % kLanesOfRow, kLanesOfRow);
        if (own < 0 || own >= 2 * p.pairs) return;
        const int pair = second ? own - p.pairs : own;
        const auto angles = [&](const void* table, Index stride) {
            return *reinterpret_cast<const Angles*>(static_cast<const Angle*>(table) + position * stride + pair);
        };
        const Angles cos = angles(p.cos, p.cos_stride), sin = angles(p.sin, p.sin_stride);
#pragma unroll
        for (int e = 0; e < kPiece; ++e)  // one of the two of `rotated`
            x[0][e] =
                difference_of_products(x[0][e], to_float(cos.x[e]), second ? -other[e] : other[e], to_float(sin.x[e]));
    }

    __device__ __forceinline__ void rotate_columns(const QuantizeParams& p, Index position) {
        float other[kPieces][kPiece];
        const bool within = kPiece > 1 && p.interleaved != 0;
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
            const int own = column(n) - p.rotary_begin;
            const int partner = p.rotary_begin + (p.interleaved != 0 ? own ^ 1
                                                  : own < p.pairs    ? own + p.pairs
                                                                     : own - p.pairs);
            const int piece = (partner < 0 ? 0 : partner) / kPiece;
#pragma unroll
            for (int e = 0; e < kPiece; ++e) {
                float found = 0.0f;
#pragma unroll
                for (int from = 0; from < kPieces; ++from) {
                    const float theirs = __shfl_sync(~0u, x[from][e], piece % kLanesOfRow, kLanesOfRow);
                    if (piece / kLanesOfRow == from) found = theirs;
                }
                other[n][e] = within ? x[n][e ^ 1] : found;
            }
        }
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e) {
                const int own = column(n) + e - p.rotary_begin;
                if (own < 0 || own >= 2 * p.pairs) continue;
                const bool second = p.interleaved != 0 ? own % 2 != 0 : own >= p.pairs;
                const int pair = p.interleaved != 0 ? own / 2 : second ? own - p.pairs : own;
                const float cos = angle(p, p.cos, position * p.cos_stride + pair);
                const float sin = angle(p, p.sin, position * p.sin_stride + pair);
                x[n][e] =
                    second ? rotated({other[n][e], x[n][e]}, cos, sin).y : rotated({x[n][e], other[n][e]}, cos, sin).x;
            }
    }

    // What serves these tables.
    __device__ static __forceinline__ Rotation rotation_of(const QuantizeParams& p) {
        if (p.pairs == 0) return Rotation::none;
        const int size = p.table_element == Element::fp32 ? 4 : 2;
        const int aligned = size * kPiece < 16 ? size * kPiece : 16;
        const auto fits = [&](const void* table, Index stride) {
            return reinterpret_cast<unsigned long long>(table) % aligned == 0 && stride * size % aligned == 0;
        };
        if (p.interleaved != 0 || p.pairs % kPiece != 0 || p.rotary_begin % kPiece != 0 || !fits(p.cos, p.cos_stride) ||
            !fits(p.sin, p.sin_stride))
            return Rotation::columns;
        return p.table_element == Element::fp32   ? Rotation::pieces_fp32
               : p.table_element == Element::fp16 ? Rotation::pieces_fp16
                                                  : Rotation::pieces_bf16;
    }

    __device__ __forceinline__ void apply_signs(const QuantizeParams& p) {
        const HadamardSigns signs = HadamardSigns::make(p.hadamard_seed);
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
            const unsigned first = static_cast<unsigned>(column(n));
            const Philox drawn = signs.draw(first / 128);
            unsigned word = drawn.word[0];  // registers have no index at run time
#pragma unroll
            for (unsigned k = 1; k < 4; ++k)
                if (first / 32 % 4 == k) word = drawn.word[k];
            word >>= first % 32;
#pragma unroll
            for (int e = 0; e < kPiece; ++e)
                if ((word >> e & 1) != 0) x[n][e] = -x[n][e];
        }
    }
    // H / sqrt(size) of each `size` columns: first of those within a piece, then across lanes, then across pieces.
    __device__ __forceinline__ void transform() {
        constexpr int kSize = config.head_dim & -config.head_dim;  // as shared/e4m3.h has it
#pragma unroll
        for (int half = 1; half < kSize; half *= 2)
#pragma unroll
            for (int n = 0; n < kPieces; ++n)
#pragma unroll
                for (int e = 0; e < kPiece; ++e) {
                    if (half < kPiece) {
                        if ((e & half) == 0) turn(x[n][e], x[n][(e + half) % kPiece]);
                    } else if (half < kPiece * kLanesOfRow) {
                        // the sum, or the difference
                        const float other = __shfl_xor_sync(~0u, x[n][e], half / kPiece);
                        x[n][e] = fmaf(x[n][e], (lane_of_row() & half / kPiece) == 0 ? 1.0f : -1.0f, other);
                    } else if (constexpr int kStep = kPiece * kLanesOfRow; (n & half / kStep) == 0) {
                        turn(x[n][e], x[(n + half / kStep) % kPieces][e]);
                    }
                }
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e) x[n][e] *= hadamard_factor(kSize);
    }

    // The largest finite magnitude of this lane's.
    __device__ __forceinline__ float largest() const {
        float most = 0.0f;
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e) most = fmaxf(most, fabsf(x[n][e]));  // leaves NaN out
        if (most < __int_as_float(0x7F800000)) return most;
        most = 0.0f;
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e)
                if (fabsf(x[n][e]) < __int_as_float(0x7F800000)) most = fmaxf(most, fabsf(x[n][e]));
        return most;
    }

private:
    __device__ static __forceinline__ void turn(float& a, float& b) {
        const float sum = a + b, difference = a - b;
        a = sum;
        b = difference;
    }
    __device__ static __forceinline__ float angle(const QuantizeParams& p, const void* table, Index n) {
        if (p.table_element == Element::fp32) return static_cast<const float*>(table)[n];
        const unsigned short bits = static_cast<const unsigned short*>(table)[n];
        return p.table_element == Element::fp16 ? ptx::unpack_fp16(bits) : ptx::unpack_bf16(bits);
    }
};

}  // namespace flashtile
