// quantize.h: a tensor to e4m3 numbers and scales, rotated and multiplied by M first where that is asked for. A thread
// block has a block of rows of a head in its registers, so that a block with a scale of its own is read once.
#pragma once

#include "cuda/kernels/parts/common/scaled_rows.h"
#include "cuda/kernels/ptx/cp_async.h"
#include "cuda/kernels/ptx/largest.h"

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
    static constexpr bool kKeeps = quantize_elements(config) <= kQuantizeKept, kAhead = quantize_ahead(config);
    static constexpr int kHeads = quantize_heads(config);
    // What is not kept is made one row after the other: more at once would spill. Else row r is row r % kSteps of head
    // r / kSteps.
    static constexpr int kRowsAtOnce = kKeeps ? kHeads * kSteps : 1;
    static_assert(kSteps > 0, "");

    const QuantizeParams& p;
    const typename Row::Signs signs;

    __device__ __forceinline__ static int row_of(int step) {
        return (step * config.warps + static_cast<int>(warp_id())) * kRowsOfWarp +
               static_cast<int>(lane_id()) / Row::kLanesOfRow;
    }

    __device__ __forceinline__ bool exists(const RowBlock& block, int r) const {
        return row_of(r % kSteps) < block.count && block.h + r / kSteps < p.heads;
    }
    template <class T>
    __device__ __forceinline__ T* place_of(const DeviceTensor& x, const RowBlock& block, int r) const {
        return static_cast<T*>(x.data) + block.outer * x.stride_batch + (block.at + row_of(r % kSteps)) * x.stride_row +
               (block.h + r / kSteps) * x.stride_head;
    }
    // Null: there is no such row.
    __device__ __forceinline__ const Scalar* row_at(const RowBlock& block, int r) const {
        return exists(block, r) ? place_of<const Scalar>(p.x, block, r) : nullptr;
    }
    // Where this thread alone keeps piece k of a row that is on its way.
    __device__ static __forceinline__ typename Row::Elements* slot(int r, int k) {
        return reinterpret_cast<typename Row::Elements*>(shared_memory) + (r * Row::kPieces + k) * config.warps * 32 +
               threadIdx.x;
    }
    __device__ __forceinline__ void fetch(const RowBlock& block) const {
#pragma unroll
        for (int r = 0; r < kRowsAtOnce; ++r) {
            const Scalar* const row = row_at(block, r);
#pragma unroll
            for (int k = 0; k < Row::kPieces; ++k) {
                const bool exists = row != nullptr && Row::column(k) < config.head_dim;
                ptx::cp_async<config.vector_bytes>(static_cast<unsigned>(__cvta_generic_to_shared(slot(r, k))),
                                                   exists ? row + Row::column(k) : p.x.data, exists);
            }
        }
        ptx::cp_async_commit();
    }
    // Rows as they are in memory, from `step` on; those of `next` are on their way then.
    __device__ __forceinline__ void load(Row (&rows)[kRowsAtOnce], const RowBlock& block, const RowBlock& next,
                                         int step) const {
        if constexpr (kAhead) ptx::cp_async_wait<0>();
#pragma unroll
        for (int r = 0; r < kRowsAtOnce; ++r) {
            if constexpr (kAhead)
                rows[r].load([&](int k) { return *slot(r, k); });
            else
                rows[r].load(row_at(block, step + r));
        }
        if constexpr (kAhead) {
            __syncwarp();  // Slots are read before they are written again.
            fetch(next);
        }
    }
    // Rows from `step` on, as they are to be quantised; a row that does not exist is zero.
    __device__ __forceinline__ void prepare(Row (&rows)[kRowsAtOnce], const RowBlock& block, int step) const {
        if (p.pairs != 0) {
            typename Row::Source from[kRowsAtOnce];
#pragma unroll
            for (int r = 0; r < kRowsAtOnce; ++r) {
                const int n = row_of((step + r) % kSteps);  // all heads have its position
                from[r] = {row_at(block, step + r), n < block.count ? position_of(block, n) : 0};
            }
            Row::rotate(p, rows, from);
        }
        if (p.hadamard != 0) {
            Row::apply(signs, rows);
#pragma unroll
            for (Row& row : rows) row.transform();
        }
    }
    __device__ __forceinline__ Index position_of(const RowBlock& block, int n) const {
        Index position = block.first + n;
        if (p.positions.data != nullptr)
            position = value_at(p.positions, block.outer * p.seqlen + block.at + n);
        else if (p.rotary_offsets.data != nullptr)
            position += value_at(p.rotary_offsets, block.b);
        return clamped(position, 0, p.table_rows - 1);
    }

    // The largest of all threads, of each head. Two turns have a memory each: one barrier lies between a read and the
    // next write.
    __device__ __forceinline__ void find_largest_of_all(float (&most)[kHeads], int turn) const {
        float* const of_warps =
            reinterpret_cast<float*>(shared_memory + quantize_ahead_bytes(config)) + turn * kHeads * config.warps;
#pragma unroll
        for (int u = 0; u < kHeads; ++u) {
            const float of_warp = ptx::largest_of_warp(most[u]);
            if (lane_id() == 0) of_warps[u * config.warps + warp_id()] = of_warp;
        }
        __syncthreads();
#pragma unroll
        for (int u = 0; u < kHeads; ++u)
            most[u] = ptx::largest_of_warp(of_warps[u * config.warps + lane_id() % config.warps]);
    }

    // `fits`: the instruction makes the row's e4m3 numbers.
    __device__ __forceinline__ void store(const Row& row, const RowBlock& block, int r, float inverse,
                                          bool fits) const {
        if (!exists(block, r)) return;
        unsigned char* const to = place_of<unsigned char>(p.quantized, block, r);
        if constexpr (kPacks) {
            if (fits) return store(row, to, [&](const auto& x) { return packed(x, inverse); });
        }
        store(row, to, [&](const auto& x) { return e4m3(x, inverse); });
    }
    template <class Convert>
    __device__ static __forceinline__ void store(const Row& row, unsigned char* to, Convert convert) {
#pragma unroll
        for (int k = 0; k < Row::kPieces; ++k) {
            const auto piece = convert(row.x[k]);
            if (Row::column(k) < config.head_dim)
                *reinterpret_cast<decltype(convert(row.x[k]))*>(to + Row::column(k)) = piece;
        }
    }
    __device__ static __forceinline__ auto packed(const float (&x)[Row::kPiece], float inverse) {
        Piece<unsigned, Row::kPiece / 4> words;
#pragma unroll
        for (int n = 0; n < Row::kPiece / 4; ++n)
            words.x[n] = ptx::pack_e4m3(x[4 * n] * inverse, x[4 * n + 1] * inverse, x[4 * n + 2] * inverse,
                                        x[4 * n + 3] * inverse);
        return words;
    }
    __device__ static __forceinline__ auto e4m3(const float (&x)[Row::kPiece], float inverse) {
        Piece<unsigned char, Row::kPiece> piece;
#pragma unroll
        for (int e = 0; e < Row::kPiece; ++e) piece.x[e] = static_cast<unsigned char>(float_to_e4m3(x[e] * inverse));
        return piece;
    }

    __device__ __forceinline__ float* scale_of(const RowBlock& block, int u) const {
        const unsigned h = static_cast<unsigned>(block.h) + u;
        return p.scale + block.b * p.scale_stride_batch + h / static_cast<unsigned>(p.group) * p.scale_stride_head +
               block.number * p.scale_stride_block;
    }

    __device__ __forceinline__ void run(const RowBlock& block, const RowBlock& next, int turn) const {
        const bool makes = p.makes_scales != 0 && p.step == QuantizeStep::quantize;
        Row rows[kRowsAtOnce];
        float bound[kHeads]{}, most[kHeads]{};
        if (kKeeps || makes || p.step == QuantizeStep::find_largest) {
#pragma unroll 1
            for (int step = 0; step < kHeads * kSteps; step += kRowsAtOnce) {
                load(rows, block, next, step);
                prepare(rows, block, step);
#pragma unroll
                for (int r = 0; r < kRowsAtOnce; ++r) {
                    const float of_row = rows[r].bound();
                    bound[r / kSteps] = ptx::larger_or_nan(bound[r / kSteps], of_row);
                    most[r / kSteps] = fmaxf(most[r / kSteps], is_finite(of_row) ? of_row : rows[r].largest());
                }
            }
        }
        if (makes || p.step == QuantizeStep::find_largest) find_largest_of_all(most, turn);
        float inverse[kHeads];
#pragma unroll
        for (int u = 0; u < kHeads; ++u) {
            if (block.h + u >= p.heads) break;
            float* const scale = scale_of(block, u);
            // magnitudes are in the order of their bits
            if (p.step == QuantizeStep::find_largest && threadIdx.x == 0)
                atomicMax(reinterpret_cast<int*>(scale), __float_as_int(most[u]));
            const float own = makes ? e4m3_scale(most[u]) : *scale;
            if (makes && threadIdx.x == 0) *scale = own;
            inverse[u] = 1.0f / own;
        }
        if (p.step == QuantizeStep::find_largest) return;
#pragma unroll 1
        for (int step = 0; step < kHeads * kSteps; step += kRowsAtOnce) {
            if constexpr (!kKeeps) {
                load(rows, block, next, step);
                prepare(rows, block, step);
                bound[0] = rows[0].bound();
            }
#pragma unroll
            for (int r = 0; r < kRowsAtOnce; ++r)
                store(rows[r], block, step + r, inverse[r / kSteps],
                      is_finite(bound[r / kSteps] * inverse[r / kSteps]));
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
    using Rows = QuantizeRows<config>;
    if (p.step == QuantizeStep::clear_scales || p.step == QuantizeStep::finish_scales) return change_scales(p);
    const Rows rows{p, p.hadamard != 0 ? Rows::Row::signs_of(p) : typename Rows::Row::Signs{}};
    const unsigned first = blockIdx.x * p.shares;
    RowBlock block = RowBlock::of<config.Br, Rows::kHeads>(p, first);
    if constexpr (Rows::kAhead) rows.fetch(block);
    for (unsigned n = 0; n < p.shares; ++n) {
        RowBlock next = block;  // where blocks do not exist, none that follows does
        if (n + 1 == p.shares)
            next.count = -1;
        else if ((next.h += Rows::kHeads) >= p.heads)
            next = RowBlock::of<config.Br, Rows::kHeads>(p, first + n + 1);
        if (block.count > 0)
            rows.run(block, next, n % 2);
        else if (p.makes_scales != 0 && p.step == QuantizeStep::quantize && threadIdx.x == 0 &&
                 block.number < p.scale_blocks)
            for (int u = 0; u < Rows::kHeads && block.h + u < p.heads; ++u)
                *rows.scale_of(block, u) = 1.0f;  // of no rows
        block = next;
    }
}

}  // namespace flashtile
