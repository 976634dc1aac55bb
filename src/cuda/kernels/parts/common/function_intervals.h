// function_intervals.h: what a mask function may give anywhere in a block of scores, by intervals (shared/intervals.h).
// src/cuda/jit/function_source.cpp writes what it computes.
#pragma once

#include "cuda/kernels/parts/common/element.h"
#include "shared/intervals.h"
#include "shared/kernel_params.h"

namespace flashtile::intervals {

// Lanes that ask for the same, and elements of a tensor that they look through for the least and greatest.
constexpr int kSharers = 8, kMostElements = 1024;

// The values that the language makes of elements, and every value of a type of elements.
__device__ __forceinline__ Reals only_element(float x) {
    return only(x);
}
__device__ __forceinline__ Ints only_element(int x) {
    return only(Index{x});
}
__device__ __forceinline__ Ints only_element(long long x) {
    return only(Index{x});
}
__device__ __forceinline__ Bools only_element(unsigned char x) {
    return only(x != 0);
}
__device__ __forceinline__ Reals any_element(float) {
    return any_real();
}
__device__ __forceinline__ Ints any_element(int) {
    return {-0x80000000ll, 0x7FFFFFFFll};
}
__device__ __forceinline__ Ints any_element(long long) {
    return any_int();
}
__device__ __forceinline__ Bools any_element(unsigned char) {
    return any_bool();
}

// What the lane has that differs by one bit of its number.
__device__ __forceinline__ Bools of_lane(const Bools& mine, int bit) {
    return {__shfl_xor_sync(~0u, static_cast<int>(mine.low), bit) != 0,
            __shfl_xor_sync(~0u, static_cast<int>(mine.high), bit) != 0};
}
__device__ __forceinline__ Ints of_lane(const Ints& mine, int bit) {
    return {__shfl_xor_sync(~0u, mine.low, bit), __shfl_xor_sync(~0u, mine.high, bit)};
}
__device__ __forceinline__ Reals of_lane(const Reals& mine, int bit) {
    return {__shfl_xor_sync(~0u, mine.low, bit), __shfl_xor_sync(~0u, mine.high, bit),
            __shfl_xor_sync(~0u, static_cast<int>(mine.known), bit) != 0};
}

// The elements of a tensor whose indices lie in intervals, and 0 if some of these lie outside. All lanes of a warp call
// this together; kSharers lanes beside each other ask for the same, and share the work.
template <class T, class... Intervals>
__device__ __forceinline__ auto loaded(const DeviceFunctionTensor& tensor, const Intervals&... intervals) {
    constexpr int kRank = sizeof...(Intervals);
    const Ints index[] = {intervals...};
    Index offset = 0;
    int size[kRank], count = 1;
    bool outside = false, none = false, many = false;
#pragma unroll
    for (int d = 0; d < kRank; ++d) {
        const Index first = greater(index[d].low, Index{0}), last = lesser(index[d].high, tensor.shape[d] - 1);
        none = none || first > last;
        many = many || (!none && last - first >= kMostElements / count);
        size[d] = none || many ? 1 : static_cast<int>(last - first) + 1;
        count *= size[d];
        outside = outside || first != index[d].low || last != index[d].high;
        offset += first * tensor.stride[d];
    }
    const auto element = [&](int n) {
        Index at = offset;
#pragma unroll
        for (int d = kRank - 1; d > 0; --d) {
            at += n % size[d] * tensor.stride[d];
            n /= size[d];
        }
        return only_element(static_cast<const T*>(tensor.data)[at + n * tensor.stride[0]]);
    };
    const auto zero = only_element(T{});
    auto all = zero;
    if (!none && !many) {
        const int own = static_cast<int>(lane_id()) % kSharers;
        all = element(lesser(own, count - 1));
#pragma unroll 4  // several loads are under way
        for (int n = own + kSharers; n < count; n += kSharers) all = join(all, element(n));
    }
#pragma unroll
    for (int bit = kSharers / 2; bit > 0; bit /= 2) all = join(all, of_lane(all, bit));
    if (none) return zero;
    if (many) return any_element(T{});
    return outside ? join(all, zero) : all;
}

}  // namespace flashtile::intervals
