// dequantize.h: e4m3 numbers and their scales to the tensor that they stand for, with M undone where it is given. It
// shares its parameters with quantize.h.
#pragma once

#include "cuda/kernels/parts/common/scaled_rows.h"

namespace flashtile {

template <KernelConfig config>
__device__ __forceinline__ void dequantize(const QuantizeParams& p) {
    using Row = ScaledRow<config>;
    using Scalar = typename Row::Scalar;
    constexpr int kRowsOfWarp = 32 / Row::kLanesOfRow;
    const RowBlock block = RowBlock::of<config.Br>(p, blockIdx.x);
    if (block.count <= 0) return;
    const float scale = p.scale[block.b * p.scale_stride_batch + block.h / p.group * p.scale_stride_head +
                                block.number * p.scale_stride_block];
    typename Row::Signs signs{};
    if (p.hadamard != 0) signs = Row::signs_of(p);
    for (int first = static_cast<int>(warp_id()) * kRowsOfWarp; first < config.Br;
         first += config.warps * kRowsOfWarp) {
        const int n = first + static_cast<int>(lane_id()) / Row::kLanesOfRow;
        const bool exists = n < block.count;
        const auto row_of = [&](const DeviceTensor& x) {
            return block.outer * x.stride_batch + (block.at + n) * x.stride_row + block.h * x.stride_head;
        };
        Row rows[1];
        Row& row = rows[0];
#pragma unroll
        for (int k = 0; k < Row::kPieces; ++k) {
            Piece<unsigned char, Row::kPiece> piece{};
            if (exists && Row::column(k) < config.head_dim)
                piece = *reinterpret_cast<const Piece<unsigned char, Row::kPiece>*>(
                    static_cast<const unsigned char*>(p.quantized.data) + row_of(p.quantized) + Row::column(k));
#pragma unroll
            for (int e = 0; e < Row::kPiece; ++e) row.x[k][e] = e4m3_to_float(piece.x[e]) * scale;
        }
        if (p.hadamard != 0) {
            row.transform();
            Row::apply(signs, rows);
        }
        if (!exists) continue;
#pragma unroll
        for (int k = 0; k < Row::kPieces; ++k) {
            if (Row::column(k) >= config.head_dim) continue;
            Piece<Scalar, Row::kPiece> piece;
#pragma unroll
            for (int e = 0; e < Row::kPiece; ++e) piece.x[e] = Row::M::from_float(row.x[k][e]);
            *reinterpret_cast<Piece<Scalar, Row::kPiece>*>(static_cast<Scalar*>(p.x.data) + row_of(p.x) +
                                                           Row::column(k)) = piece;
        }
    }
}

}  // namespace flashtile
