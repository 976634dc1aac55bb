// quantize.h: a tensor to e4m3 numbers and scales, rotated and multiplied by M first where that is asked for. A thread
// block has a block of rows of a head in its registers, so that a block with a scale of its own is read once.
#pragma once

#include "cuda/kernels/parts/common/scaled_rows.h"

namespace flashtile {

extern __shared__ __align__(16) unsigned char shared_memory[];

template <KernelConfig config>
struct QuantizeRows {
    using Row = ScaledRow<config>;
    using Scalar = typename Row::Scalar;
    static constexpr int kRowsOfWarp = 32 / Row::kLanesOfRow;
    static constexpr int kSteps = config.Br / (config.warps * kRowsOfWarp);  // rows that a lane has a part of
    // The instruction that makes e4m3 numbers of finite ones.
    static constexpr bool kPacks = __CUDA_ARCH__ >= 890 && Row::kPiece % 4 == 0;
    // Wider heads do not fit the registers, and are read twice.
    static constexpr bool kKeeps = quantize_elements(config) <= 64;
    // What is not kept is made one row after the other: more at once would spill.
    static constexpr int kStepsAtOnce = kKeeps ? kSteps : 1;
    static_assert(kSteps > 0, "");

    const QuantizeParams& p;
    const RowBlock block;

    __device__ __forceinline__ static int row_of(int step) {
        return (step * config.warps + static_cast<int>(warp_id())) * kRowsOfWarp +
               static_cast<int>(lane_id()) / Row::kLanesOfRow;
    }

    // A row as it is to be quantised; a row that does not exist is zero.
    template <Rotation kRotation>
    __device__ __forceinline__ void prepare(Row& row, int step) const {
        const int n = row_of(step);
        const bool exists = n < block.count;
        row.load(exists ? static_cast<const Scalar*>(p.x.data) + block.outer * p.x.stride_batch +
                              (block.at + n) * p.x.stride_row + block.h * p.x.stride_head
                        : nullptr);
        if constexpr (kRotation != Rotation::none) row.template rotate<kRotation>(p, exists ? position_of(n) : 0);
        if (p.hadamard != 0) {
            row.apply_signs(p);
            row.transform();
        }
    }
    __device__ __forceinline__ Index position_of(int n) const {
        Index position = block.first + n;
        if (p.positions.data != nullptr)
            position = value_at(p.positions, block.outer * p.seqlen + block.at + n);
        else if (p.rotary_offsets.data != nullptr)
            position += value_at(p.rotary_offsets, block.b);
        return clamped(position, 0, p.table_rows - 1);
    }

    // The largest of all threads.
    __device__ static __forceinline__ float largest_of_all(float mine) {
        float* const of_warp = reinterpret_cast<float*>(shared_memory);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, distance));
        if (lane_id() == 0) of_warp[warp_id()] = mine;
        __syncthreads();
        float most = 0.0f;
        for (int n = 0; n < config.warps; ++n) most = fmaxf(most, of_warp[n]);
        return most;
    }

    __device__ __forceinline__ void store(const Row& row, int step, float inverse) const {
        const int n = row_of(step);
        if (n >= block.count) return;
        unsigned char* const to = static_cast<unsigned char*>(p.quantized.data) +
                                  block.outer * p.quantized.stride_batch + (block.at + n) * p.quantized.stride_row +
                                  block.h * p.quantized.stride_head;
#pragma unroll
        for (int k = 0; k < Row::kPieces; ++k) {
            if (Row::column(k) >= config.head_dim) continue;
            *reinterpret_cast<Piece<unsigned char, Row::kPiece>*>(to + Row::column(k)) = e4m3(row.x[k], inverse);
        }
    }
    __device__ static __forceinline__ Piece<unsigned char, Row::kPiece> e4m3(const float (&x)[Row::kPiece],
                                                                             float inverse) {
        if constexpr (kPacks) {
            float scaled[Row::kPiece], nothing = 0.0f;
#pragma unroll
            for (int e = 0; e < Row::kPiece; ++e) {
                scaled[e] = x[e] * inverse;
                nothing = fmaf(scaled[e], 0.0f, nothing);  // NaN of what is not finite
            }
            if (nothing == 0.0f) {
                union {
                    Piece<unsigned char, Row::kPiece> bytes;
                    unsigned words[Row::kPiece / 4];
                } piece;
#pragma unroll
                for (int n = 0; n < Row::kPiece / 4; ++n)
                    piece.words[n] =
                        ptx::pack_e4m3(scaled[4 * n], scaled[4 * n + 1], scaled[4 * n + 2], scaled[4 * n + 3]);
                return piece.bytes;
            }
        }
        Piece<unsigned char, Row::kPiece> piece;
#pragma unroll
        for (int e = 0; e < Row::kPiece; ++e) piece.x[e] = static_cast<unsigned char>(float_to_e4m3(x[e] * inverse));
        return piece;
    }

    __device__ __forceinline__ float* scale() const {
        return p.scale + block.b * p.scale_stride_batch + block.h / p.group * p.scale_stride_head +
               block.number * p.scale_stride_block;
    }

    __device__ __forceinline__ void run() const {
        const Rotation rotation = Row::rotation_of(p);
        if (rotation == Rotation::none) return run<Rotation::none>();
        if constexpr (Row::kPieces == 1) {
            if (rotation == Rotation::pieces_fp32) return run<Rotation::pieces_fp32>();
            if (rotation == Rotation::pieces_fp16) return run<Rotation::pieces_fp16>();
            if (rotation == Rotation::pieces_bf16) return run<Rotation::pieces_bf16>();
        }
        run<Rotation::columns>();
    }
    template <Rotation kRotation>
    __device__ __forceinline__ void run() const {
        const bool makes = p.makes_scales != 0 && p.step == QuantizeStep::quantize;
        Row rows[kKeeps ? kSteps : 1];
        float most = 0.0f;
        if (kKeeps || makes || p.step == QuantizeStep::find_largest) {
#pragma unroll kStepsAtOnce
            for (int step = 0; step < kSteps; ++step) {
                prepare<kRotation>(rows[kKeeps ? step : 0], step);
                most = fmaxf(most, rows[kKeeps ? step : 0].largest());
            }
        }
        if (makes || p.step == QuantizeStep::find_largest) most = largest_of_all(most);
        if (p.step == QuantizeStep::find_largest) {
            // magnitudes are in the order of their bits
            if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(scale()), __float_as_int(most));
            return;
        }
        const float own = makes ? e4m3_scale(most) : *scale();
        if (makes && threadIdx.x == 0) *scale() = own;
        const float inverse = 1.0f / own;
#pragma unroll kStepsAtOnce
        for (int step = 0; step < kSteps; ++step) {
            if constexpr (!kKeeps) prepare<kRotation>(rows[0], step);
            store(rows[kKeeps ? step : 0], step, inverse);
        }
    }
};

// One thread changes one scale, of all that there are.
__device__ __forceinline__ void change_scales(const QuantizeParams& p) {
    const Index count = p.scale_batch * p.scale_heads * p.scale_blocks;
    for (Index n = Index{blockIdx.x} * blockDim.x + threadIdx.x; n < count; n += Index{gridDim.x} * blockDim.x) {
        float& scale = p.scale[n / p.scale_blocks / p.scale_heads * p.scale_stride_batch +
                               n / p.scale_blocks % p.scale_heads * p.scale_stride_head +
                               n % p.scale_blocks * p.scale_stride_block];
        scale = p.step == QuantizeStep::clear_scales ? 0.0f : e4m3_scale(scale);
    }
}

template <KernelConfig config>
__device__ __forceinline__ void quantize(const QuantizeParams& p) {
    if (p.step == QuantizeStep::clear_scales || p.step == QuantizeStep::finish_scales) return change_scales(p);
    const QuantizeRows<config> rows{p, RowBlock::of<config.Br>(p, blockIdx.x)};
    if (rows.block.count > 0)
        rows.run();
    else if (p.makes_scales != 0 && p.step == QuantizeStep::quantize && threadIdx.x == 0 &&
             rows.block.number < p.scale_blocks)
        *rows.scale() = 1.0f;  // of no rows
}

}  // namespace flashtile
