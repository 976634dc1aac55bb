// backward_tensors_sm80.h: the gradients of the tensors that a score function reads: of an element the sum over all
// places (b, h, i, j) at which it is read, of dS there, the gradient of what the function gives, times the function's
// derivative by what is read. It is a pass of its own, which computes S and dP once more. A thread block owns a block
// of queries and walks the keys. Places that read the same element one after the other add up in registers; the rest is
// added to memory with atomics, in no fixed order.
#pragma once

#include "cuda/kernels/parts/common/functions.h"
#include "cuda/kernels/parts/mma/gradient_block.h"

namespace flashtile {

// Of each of a function's loads a lane's sum for the element that it has read last.
template <int kLoads>
class ElementSums {
public:
    __device__ __forceinline__ ElementSums() {
#pragma unroll
        for (int load = 0; load < kLoads; ++load) element_[load] = nullptr;
    }
    __device__ __forceinline__ void add(int load, float* element, float x) {
        if (element_[load] != element) {
            if (element_[load] != nullptr) atomicAdd(element_[load], sum_[load]);
            element_[load] = element;
            sum_[load] = 0.0f;
        }
        sum_[load] += x;
    }
    // To be called by all lanes of a warp, which may all have the same element.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int load = 0; load < kLoads; ++load) {
            const auto address = reinterpret_cast<unsigned long long>(element_[load]);
            const bool alike = __all_sync(~0u, address == __shfl_sync(~0u, address, 0));
            float sum = sum_[load];
            if (alike)
                for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
            if (element_[load] != nullptr && (!alike || lane_id() == 0)) atomicAdd(element_[load], sum);
        }
    }

private:
    float* element_[kLoads];  // null: none so far
    float sum_[kLoads] = {};
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One thread block works on one block of queries.
template <KernelConfig config>
__device__ __forceinline__ void backward_tensors_sm80(const KernelParams& params) {
    using Tile = GradientTile<config>;
    using Grid = typename Tile::ScoreGrid;
    const HeadBlock own(params.seqlen_q, config.Br);
    const Sequence seq = own.of_queries<config>(params);
    const int i0 = static_cast<int>(own.block()) * config.Br;
    if (i0 >= seq.seqlen_q) return;
    const GradientBlock<config> block{Tile(shared_memory)};
    block.tile.clear_paddings();
    ElementSums<ScoreLoads<config>::kLoads> sums;
    const auto keys = VisitedBlocks<int>::holding(
        seq.first_key<config>(i0), seq.end_key<config>(smaller(i0 + config.Br, seq.seqlen_q)), config.Bc);
    bool has_queries = false;
#pragma unroll 1
    for (int n = 0; n < keys.count; ++n) {
        const int j0 = keys.forwards(n);
        typename Grid::Accumulators ds, given;
        if (!block.template compute<DerivativeBy::function>(params, seq, i0, j0, has_queries, ds, given)) continue;
        each_function_value<ScoreLoads, config, Grid::MT, Grid::NT>(
            params, seq, Tile::place_in(i0, j0),
            [&](int m, int t, int e, const auto& function, const auto& row, const auto& column, const auto& diagonal) {
                const float upstream = ds.c[m][t][e];
                if (upstream == 0.0f) return;  // what is not seen has no gradient, whatever the derivative is there
                function.each(row, column, diagonal, given.c[m][t][e],
                              [&](int load, int tensor, float derivative, auto... indices) {
                                  const DeviceTensorGradient& to = params.dtensors[tensor];
                                  if (to.data == nullptr) return;
                                  const Index at = op::place(params.function_tensors[tensor], to.stride, indices...);
                                  if (at >= 0) sums.add(load, to.data + at, upstream * derivative);
                              });
            });
    }
    sums.finish();
}

}  // namespace flashtile
