// scaled_rows.h: rows of a head as the kernels that quantise hold them: some neighbouring lanes share a row, each with
// pieces of its columns in fp32. Rotation and M are done in the order of operations of shared/append_params.h and
// shared/e4m3.h, so that the bits are those of the CPU.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "cuda/kernels/parts/common/piece.h"
#include "cuda/kernels/ptx/largest.h"
#include "shared/quantize_params.h"

namespace flashtile {

__device__ __forceinline__ bool is_finite(float x) {
    return fabsf(x) < __int_as_float(0x7F800000);
}

// A block of rows of a head of a sequence.
struct RowBlock {
    Index b, h;
    Index first, count;  // of the sequence's rows; count < 0: no such block
    Index outer, at;     // where the first one lies: row `at` of batch `outer`
    Index number;        // of the sequence's blocks, or of all packed ones

    // Number n of all, head by head fastest, or group of kHeads heads by group. There are no more heads and blocks than
    // thread blocks, and 32 bits hold them: division by 64 bits would take as long as a row.
    template <int kRows, int kHeads = 1>
    __device__ static __forceinline__ RowBlock of(const QuantizeParams& p, unsigned n) {
        const unsigned groups = (static_cast<unsigned>(p.heads) + kHeads - 1) / kHeads, block = n / groups;
        const Index h = (n - block * groups) * kHeads;
        if (p.cu_seqlens.data == nullptr) {
            const unsigned blocks = static_cast<unsigned>(p.blocks), of_batch = block / blocks;
            const Index b = of_batch, number = block - of_batch * blocks, first = number * kRows;
            if (b >= p.batch) return {0, h, 0, -1, 0, 0, p.blocks};
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

template <KernelConfig config>
struct ScaledRow {
    static constexpr int kPiece = quantize_piece(config), kLanesOfRow = quantize_row_lanes(config);
    static constexpr int kPieces = quantize_pieces(config);
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Elements = Piece<Scalar, kPiece>;

    float x[kPieces][kPiece];

    // The lane's place among those of its row, and the first column of its n-th piece.
    __device__ static __forceinline__ int lane_of_row() { return static_cast<int>(lane_id()) % kLanesOfRow; }
    __device__ static __forceinline__ int column(int n) { return (n * kLanesOfRow + lane_of_row()) * kPiece; }

    // `piece_of(n)` has the row's n-th piece.
    template <class PieceOf>
    __device__ __forceinline__ void load(const PieceOf& piece_of) {
#pragma unroll
        for (int n = 0; n < kPieces; ++n) to_floats(x[n], piece_of(n));
    }
    __device__ __forceinline__ void load(const Scalar* row) {
        load([&](int n) {
            return row != nullptr && column(n) < config.head_dim ? *reinterpret_cast<const Elements*>(row + column(n))
                                                                 : Elements{};
        });
    }

    // Where a row lies, null if it does not exist, and the position that it is rotated by.
    struct Source {
        const Scalar* row;
        Index position;
    };
    template <int kRows>
    __device__ static __forceinline__ void rotate(const QuantizeParams& p, ScaledRow (&rows)[kRows],
                                                  const Source (&from)[kRows]) {
        if (!angles_in_pieces(p)) {
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                if (from[r].row != nullptr) rows[r].rotate_columns(p, from[r]);
        } else if (p.table_element == Element::fp32) {
            rotate<float>(p, rows, from, [](float angle) { return angle; });
        } else if (p.table_element == Element::fp16) {
            rotate<unsigned short>(p, rows, from, [](unsigned short bits) { return ptx::unpack_fp16(bits); });
        } else {
            rotate<unsigned short>(p, rows, from, [](unsigned short bits) { return ptx::unpack_bf16(bits); });
        }
    }

    // Bit n * kPiece + e: x[n][e] changes its sign.
    struct Signs {
        unsigned word[(kPieces * kPiece + 31) / 32];
    };
    __device__ static __forceinline__ Signs signs_of(const QuantizeParams& p) {
        const HadamardSigns signs = HadamardSigns::make(p.hadamard_seed);
        Signs own{};
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
            const unsigned first = static_cast<unsigned>(column(n));
            const Philox drawn = signs.draw(config.head_dim <= 128 ? 0 : first / 128);
            unsigned word = drawn.word[0];  // registers have no index at run time
#pragma unroll
            for (unsigned k = 1; k < 4; ++k)
                if (first / 32 % 4 == k) word = drawn.word[k];
            own.word[n * kPiece / 32] |= (word >> first % 32 & ((1u << kPiece) - 1)) << n * kPiece % 32;
        }
        return own;
    }
    template <int kRows>
    __device__ static __forceinline__ void apply(Signs signs, ScaledRow (&rows)[kRows]) {
        // Else all bits would be spread before the first block, and have no registers.
        for (unsigned& word : signs.word) asm volatile("" : "+r"(word));
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e) {
                const int bit = n * kPiece + e;
                const unsigned sign = signs.word[bit / 32] << (31 - bit % 32) & 0x80000000u;
#pragma unroll
                for (int r = 0; r < kRows; ++r)
                    rows[r].x[n][e] = __uint_as_float(__float_as_uint(rows[r].x[n][e]) ^ sign);
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

    // The largest magnitude of this lane's; NaN if one is NaN.
    __device__ __forceinline__ float bound() const {
        float most = 0.0f;
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {  // Instructions of several pieces do not wait for each other.
            float of_piece = fabsf(x[n][0]);
#pragma unroll
            for (int e = 1; e < kPiece; ++e) of_piece = ptx::larger_or_nan(of_piece, fabsf(x[n][e]));
            most = ptx::larger_or_nan(most, of_piece);
        }
        return most;
    }
    // The largest finite magnitude of this lane's.
    __device__ __forceinline__ float largest() const {
        float most = 0.0f;
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e)
                if (is_finite(x[n][e])) most = fmaxf(most, fabsf(x[n][e]));
        return most;
    }

private:
    // Angles lie as vectors of as many as a piece has columns, whose partners are a piece, too.
    __device__ static __forceinline__ bool angles_in_pieces(const QuantizeParams& p) {
        const int size = p.table_element == Element::fp32 ? 4 : 2;
        const int aligned = size * kPiece < 16 ? size * kPiece : 16;
        const auto fits = [&](const void* table, Index stride) {
            return reinterpret_cast<unsigned long long>(table) % aligned == 0 && stride * size % aligned == 0;
        };
        return p.interleaved == 0 && p.pairs % kPiece == 0 && p.rotary_begin % kPiece == 0 &&
               fits(p.cos, p.cos_stride) && fits(p.sin, p.sin_stride);
    }

    template <class Angle, class ToFloat, int kRows>
    __device__ static __forceinline__ void rotate(const QuantizeParams& p, ScaledRow (&rows)[kRows],
                                                  const Source (&from)[kRows], ToFloat to_float) {
        // A lane that has both halves' pieces needs nothing of others.
        if (kPieces % 2 == 0 && kPieces * kLanesOfRow * kPiece == config.head_dim && 2 * p.pairs == config.head_dim) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) rows[r].template rotate_halves<Angle>(p, from[r], to_float);
        } else {
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                if (from[r].row != nullptr) rows[r].template rotate_pieces<Angle>(p, from[r], to_float);
        }
    }

    template <class Angle>
    __device__ static __forceinline__ Piece<Angle, kPiece> angles(const void* row_of_table, int pair) {
        return *reinterpret_cast<const Piece<Angle, kPiece>*>(static_cast<const Angle*>(row_of_table) + pair);
    }
    template <class Angle, class ToFloat>
    __device__ __forceinline__ void rotate_halves(const QuantizeParams& p, const Source& from, ToFloat to_float) {
        const Angle* const cos_row = static_cast<const Angle*>(p.cos) + from.position * p.cos_stride;
        const Angle* const sin_row = static_cast<const Angle*>(p.sin) + from.position * p.sin_stride;
        constexpr int kHalf = kPieces / 2;
#pragma unroll
        for (int n = 0; n < kHalf; ++n) {
            const auto cos = angles<Angle>(cos_row, column(n)), sin = angles<Angle>(sin_row, column(n));
#pragma unroll
            for (int e = 0; e < kPiece; ++e) {
                float &first = x[n][e], &second = x[n + kHalf][e];
                const Pair pair = rotated({first, second}, to_float(cos.x[e]), to_float(sin.x[e]));
                first = pair.x;
                second = pair.y;
            }
        }
    }
    // A piece's partners are read from where the row lies.
    template <class Angle, class ToFloat>
    __device__ __forceinline__ void rotate_pieces(const QuantizeParams& p, const Source& from, ToFloat to_float) {
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
            const int own = column(n) - p.rotary_begin;
            if (own < 0 || own >= 2 * p.pairs) continue;
            const bool second = own >= p.pairs;
            const int pair = second ? own - p.pairs : own, partner = second ? pair : own + p.pairs;
            float theirs[kPiece];
            to_floats(theirs, *reinterpret_cast<const Elements*>(from.row + p.rotary_begin + partner));
            const auto cos = angles<Angle>(static_cast<const Angle*>(p.cos) + from.position * p.cos_stride, pair);
            const auto sin = angles<Angle>(static_cast<const Angle*>(p.sin) + from.position * p.sin_stride, pair);
#pragma unroll
            for (int e = 0; e < kPiece; ++e)  // one of the two of `rotated`
                x[n][e] = difference_of_products(x[n][e], to_float(cos.x[e]), second ? -theirs[e] : theirs[e],
                                                 to_float(sin.x[e]));
        }
    }
    __device__ __forceinline__ void rotate_columns(const QuantizeParams& p, const Source& from) {
#pragma unroll
        for (int n = 0; n < kPieces; ++n)
#pragma unroll
            for (int e = 0; e < kPiece; ++e) {
                const int own = column(n) + e - p.rotary_begin;
                if (own < 0 || own >= 2 * p.pairs) continue;
                const bool second = p.interleaved != 0 ? own % 2 != 0 : own >= p.pairs;
                const int distance = p.interleaved != 0 ? 1 : p.pairs;
                const int pair = p.interleaved != 0 ? own / 2 : second ? own - p.pairs : own;
                const float theirs = M::to_float(from.row[p.rotary_begin + (second ? own - distance : own + distance)]);
                const float cos = angle(p, p.cos, from.position * p.cos_stride + pair);
                const float sin = angle(p, p.sin, from.position * p.sin_stride + pair);
                x[n][e] = difference_of_products(x[n][e], cos, second ? -theirs : theirs, sin);
            }
    }

    __device__ static __forceinline__ void to_floats(float (&x)[kPiece], const Elements& piece) {
        if constexpr (sizeof(Scalar) == 2 && kPiece > 1) {  // Words, or the compiler would cut out every element first.
            const auto words = __builtin_bit_cast(Piece<unsigned, kPiece / 2>, piece);
#pragma unroll
            for (int n = 0; n < kPiece / 2; ++n) {
                const float2 pair = M::unpack(words.x[n]);
                x[2 * n] = pair.x;
                x[2 * n + 1] = pair.y;
            }
        } else {
#pragma unroll
            for (int e = 0; e < kPiece; ++e) x[e] = M::to_float(piece.x[e]);
        }
    }
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
