// memory.h: the two memories of the FlashAttention paper's section 2. The matrices lie in slow memory (HBM; on a CPU,
// DRAM). Blocks of them, and what is computed of these, lie in fast memory of M elements (SRAM; on a CPU, its caches).
// An algorithm reaches a matrix in slow memory through Memory alone, so that a Count is told of every element that
// moves. The default Count compiles to nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "baselines/head.h"
#include "baselines/parallel_for.h"

namespace flashtile::baselines {

struct Uncounted {
    static constexpr bool computes = true;
    void loaded(std::int64_t) {}
    void stored(std::int64_t) {}
    void holds(std::int64_t) {}
};

// Elements, of one thread. Without `computes` the walk over the blocks is the same, but nothing is allocated, copied or
// computed, and matrices need no data.
struct Counted {
    bool computes = true;
    std::int64_t loads = 0;
    std::int64_t stores = 0;
    std::int64_t fast = 0;  // of all blocks that fast memory holds

    void loaded(std::int64_t elements) { loads += elements; }
    void stored(std::int64_t elements) { stores += elements; }
    void holds(std::int64_t elements) { fast += elements; }
};

// A matrix in slow memory. T is float or const float. A vector of N is N x 1.
template <class T>
class Slow {
public:
    Slow(const Matrix<T>& matrix) : matrix_(matrix) {}
    operator Slow<const T>() const { return Matrix<const T>(matrix_); }
    std::int64_t rows() const { return matrix_.rows; }
    std::int64_t columns() const { return matrix_.columns; }

private:
    template <class Count>
    friend class Memory;
    Matrix<T> matrix_;
};

// Of the vector of head h of sequence b in a (batch, heads, seqlen_q) tensor.
template <class T>
Matrix<T> vector_head(const Shape& s, T* tensor, std::int64_t b, std::int64_t h) {
    return {tensor + (b * s.heads + h) * s.seqlen_q, s.seqlen_q, 1, 1};
}

// A block in fast memory, of at most the rows that it was made with.
class Block {
public:
    Block(std::int64_t rows, std::int64_t columns, bool allocated)
        : numbers_(allocated ? static_cast<std::size_t>(rows * columns) : 0), rows_(rows), columns_(columns) {}

    std::int64_t rows() const { return rows_; }
    std::int64_t columns() const { return columns_; }
    float* row(std::int64_t i) { return numbers_.data() + i * columns_; }
    float& operator[](std::int64_t i) { return numbers_[static_cast<std::size_t>(i)]; }  // of a vector
    Matrix<float> matrix() { return {numbers_.data(), rows_, columns_, columns_}; }

    // The last block of a matrix is smaller.
    void reshape(std::int64_t rows, std::int64_t columns) { rows_ = rows, columns_ = columns; }
    void fill(float value) { std::ranges::fill(numbers_, value); }

private:
    std::vector<float> numbers_;
    std::int64_t rows_;
    std::int64_t columns_;
};

template <class Count>
class Memory {
public:
    explicit Memory(Count& count) : count_(count) {}

    bool computes() const { return count_.computes; }

    Block hold(std::int64_t rows, std::int64_t columns) {
        count_.holds(rows * columns);
        return {rows, columns, computes()};
    }

    // Rows first, first + 1 .. of the matrix, as many as `most` and the matrix have.
    void load(const Slow<const float>& from, std::int64_t first, std::int64_t most, Block& to) {
        const std::int64_t rows = std::min(most, from.rows() - first);
        to.reshape(rows, from.columns());
        count_.loaded(rows * from.columns());
        if (!computes()) return;
        for (std::int64_t i = 0; i < rows; ++i) std::copy_n(from.matrix_.row(first + i), from.columns(), to.row(i));
    }

    // The same rows to go on adding to, or zeros to begin with.
    void load_or_clear(bool loads, const Slow<const float>& from, std::int64_t first, std::int64_t most, Block& to) {
        if (loads) return load(from, first, most, to);
        to.reshape(std::min(most, from.rows() - first), from.columns());
        to.fill(0.0f);
    }

    void store(Block& from, const Slow<float>& to, std::int64_t first) {
        count_.stored(from.rows() * to.columns());
        if (!computes()) return;
        for (std::int64_t i = 0; i < from.rows(); ++i)
            std::copy_n(from.row(i), to.columns(), to.matrix_.row(first + i));
    }

    void fill(const Slow<float>& to, float value) {
        count_.stored(to.rows() * to.columns());
        if (!computes()) return;
        for (std::int64_t i = 0; i < to.rows(); ++i) std::fill_n(to.matrix_.row(i), to.columns(), value);
    }

    // C = alpha op(A) op(B) + beta C, all in slow memory. As the papers count it, a GEMM reads no number twice.
    void multiply(float alpha, const Slow<const float>& A, Transpose a, const Slow<const float>& B, Transpose b,
                  float beta, const Slow<float>& C) {
        count_.loaded(A.rows() * A.columns() + B.rows() * B.columns());
        if (beta != 0.0f) count_.loaded(C.rows() * C.columns());
        count_.stored(C.rows() * C.columns());
        if (computes()) gemm(alpha, A.matrix_, a, B.matrix_, b, beta, C.matrix_);
    }

    // f(i, row i) changes every row of C where it lies.
    template <class Function>
    void change_rows(const Slow<float>& C, int threads, Function f) {
        count_.loaded(C.rows() * C.columns());
        count_.stored(C.rows() * C.columns());
        if (!computes()) return;
        parallel_for(C.rows(), threads, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) f(C.matrix_.row(i), i);
        });
    }

    // f(row i of A, row i of C) changes every row of C where it lies.
    template <class Function>
    void change_rows_by(const Slow<const float>& A, const Slow<float>& C, int threads, Function f) {
        count_.loaded(A.rows() * A.columns());
        change_rows(C, threads, [&](float* row, std::int64_t i) { f(A.matrix_.row(i), row); });
    }

private:
    Count& count_;
};

}  // namespace flashtile::baselines
