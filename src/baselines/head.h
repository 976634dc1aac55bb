// head.h: one head of a (batch, seqlen, heads, head_dim) tensor as a matrix, and the GEMM of such matrices by OpenBLAS.
#pragma once

#include <cblas.h>

#include <cstdint>

#include "baselines/standard_attention.h"

namespace flashtile::baselines {

// Row-major; `stride` elements from a row to the next. T is float or const float.
template <class T>
struct Matrix {
    T* data;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t stride;

    T* row(std::int64_t i) const { return data + i * stride; }
    operator Matrix<const T>() const { return {data, rows, columns, stride}; }
};

template <class T>
Matrix<T> head_of(T* tensor, std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim, std::int64_t b,
                  std::int64_t h) {
    return {tensor + (b * seqlen * heads + h) * head_dim, seqlen, head_dim, heads * head_dim};
}

template <class T>
Matrix<T> query_head(const Shape& s, T* tensor, std::int64_t b, std::int64_t h) {
    return head_of(tensor, s.seqlen_q, s.heads, s.head_dim, b, h);
}

template <class T>
Matrix<T> key_head(const Shape& s, T* tensor, std::int64_t b, std::int64_t h) {
    return head_of(tensor, s.seqlen_k, s.kv_heads, s.head_dim, b, h);
}

template <class T>
Matrix<T> score_head(const Shape& s, T* tensor, std::int64_t b, std::int64_t h) {
    return {tensor + (b * s.heads + h) * s.seqlen_q * s.seqlen_k, s.seqlen_q, s.seqlen_k, s.seqlen_k};
}

// Calls body(b, h, kv_head, first) for every query head of the groups begin, begin + 1 .. end - 1, counted through all
// sequences. dK and dV are sums over a group, of which `first` is the first.
template <class Body>
void each_head_of_groups(const Shape& s, std::int64_t begin, std::int64_t end, Body body) {
    const std::int64_t group = s.heads / s.kv_heads;
    for (std::int64_t index = begin; index < end; ++index) {
        const std::int64_t b = index / s.kv_heads, kv_head = index % s.kv_heads;
        for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
            body(b, h, kv_head, h == kv_head * group);
    }
}

enum class Transpose { no, yes };

// C = alpha * op(A) op(B) + beta * C
inline void gemm(float alpha, Matrix<const float> A, Transpose a, Matrix<const float> B, Transpose b, float beta,
                 Matrix<float> C) {
    const auto op = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
    const auto n = [](std::int64_t size) { return static_cast<blasint>(size); };
    const std::int64_t inner = a == Transpose::yes ? A.rows : A.columns;
    cblas_sgemm(CblasRowMajor, op(a), op(b), n(C.rows), n(C.columns), n(inner), alpha, A.data, n(A.stride), B.data,
                n(B.stride), beta, C.data, n(C.stride));
}

}  // namespace flashtile::baselines
