// function_operations.h: the operations of the user's functions that CUDA C++ does not have as docs/functions.md wants
// them. src/cuda/jit/function_source.cpp writes calls of them. An int has 64 bits and wraps, and no division or read of
// a tensor can fault. Where function_source.cpp knows that a result and its arguments fit 32 bits, an int has these.
#pragma once

#include "shared/kernel_params.h"

namespace flashtile::op {

__device__ __forceinline__ unsigned long long bits(long long x) {
    return static_cast<unsigned long long>(x);
}
__device__ __forceinline__ long long wrapped(unsigned long long x) {
    return static_cast<long long>(x);
}

__device__ __forceinline__ long long add(long long a, long long b) {
    return wrapped(bits(a) + bits(b));
}
__device__ __forceinline__ long long subtract(long long a, long long b) {
    return wrapped(bits(a) - bits(b));
}
__device__ __forceinline__ long long multiply(long long a, long long b) {
    return wrapped(bits(a) * bits(b));
}
__device__ __forceinline__ long long negate(long long a) {
    return wrapped(0 - bits(a));
}
__device__ __forceinline__ long long absolute(long long a) {
    return a < 0 ? negate(a) : a;
}
__device__ __forceinline__ long long floor_divide(long long a, long long b) {
    if (b == 0) return 0;
    if (b == -1) return negate(a);  // the least int has no quotient
    const long long quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
__device__ __forceinline__ long long remainder(long long a, long long b) {
    if (b == 0 || b == -1) return 0;
    const long long rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ __forceinline__ int absolute(int a) {
    return a < 0 ? -a : a;
}
// Of 32 bits, by a positive number.
__device__ __forceinline__ int floor_divide(int a, int b) {
    const int quotient = a / b;
    return quotient - (a % b < 0 ? 1 : 0);
}
__device__ __forceinline__ int remainder(int a, int b) {
    const int rest = a % b;
    return rest < 0 ? rest + b : rest;
}
__device__ __forceinline__ long long shift_left(long long a, long long b) {
    return wrapped(bits(a) << (b & 63));
}
__device__ __forceinline__ long long shift_right(long long a, long long b) {
    return a >> (b & 63);
}
// Rounds to zero; 0 where there is no such int, as of a NaN.
__device__ __forceinline__ long long truncated(float x) {
    return x >= -0x1p63f && x < 0x1p63f ? static_cast<long long>(x) : 0;
}

// The branch that a NaN takes matters, which fminf and fmaxf do otherwise.
template <class T>
__device__ __forceinline__ T minimum(T a, T b) {
    return b < a ? b : a;
}
template <class T>
__device__ __forceinline__ T maximum(T a, T b) {
    return a < b ? b : a;
}

// Where an element of a tensor lies by these strides, the tensor's or those of its gradient; -1 outside of the tensor.
template <class... Indices>
__device__ __forceinline__ Index place(const DeviceFunctionTensor& tensor, const Index (&stride)[4],
                                       Indices... indices) {
    const long long index[] = {indices...};
    Index offset = 0;
#pragma unroll
    for (int d = 0; d < static_cast<int>(sizeof...(Indices)); ++d) {
        if (bits(index[d]) >= bits(tensor.shape[d])) return -1;
        offset += index[d] * stride[d];
    }
    return offset;
}

// An element of a tensor, as it lies in memory; outside of the tensor 0.
template <class T, class... Indices>
__device__ __forceinline__ T element(const DeviceFunctionTensor& tensor, Indices... indices) {
    const Index offset = place(tensor, tensor.stride, indices...);
    return offset < 0 ? T{} : static_cast<const T*>(tensor.data)[offset];
}

// The same, where 32 bits hold indices and offsets.
template <class T, class... Indices>
__device__ __forceinline__ T near_element(const DeviceFunctionTensor& tensor, Indices... indices) {
    const unsigned index[] = {static_cast<unsigned>(indices)...};
    unsigned offset = 0;
#pragma unroll
    for (int d = 0; d < static_cast<int>(sizeof...(Indices)); ++d) {
        if (index[d] >= static_cast<unsigned>(tensor.near_shape[d])) return T{};
        offset += index[d] * static_cast<unsigned>(tensor.near_stride[d]);
    }
    return static_cast<const T*>(tensor.data)[static_cast<int>(offset)];
}

// The elements of a tensor along its last dimension, at indices of the others; none where one of these lies outside.
template <class T>
struct Line {
    const unsigned char* first;
    unsigned stride, shape;  // in bytes; in elements

    __device__ __forceinline__ T operator[](int index) const {
        const auto n = static_cast<unsigned>(index);
        return n < shape ? *reinterpret_cast<const T*>(first + static_cast<long long>(index) * static_cast<int>(stride))
                         : T{};
    }
};
template <class T, class... Indices>
__device__ __forceinline__ Line<T> line_of(const DeviceFunctionTensor& tensor, Indices... indices) {
    constexpr int kLast = sizeof...(Indices);
    const unsigned index[kLast + 1] = {static_cast<unsigned>(indices)...};
    unsigned offset = 0, shape = static_cast<unsigned>(tensor.near_shape[kLast]);
#pragma unroll
    for (int d = 0; d < kLast; ++d) {
        if (index[d] >= static_cast<unsigned>(tensor.near_shape[d])) shape = 0;
        offset += index[d] * static_cast<unsigned>(tensor.near_stride[d]);
    }
    constexpr int kSize = sizeof(T);
    return {static_cast<const unsigned char*>(tensor.data) + static_cast<long long>(static_cast<int>(offset)) * kSize,
            static_cast<unsigned>(tensor.near_stride[kLast]) * kSize, shape};
}

}  // namespace flashtile::op
