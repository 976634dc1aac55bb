// tensor_argument.h: one tensor of a call, under the name that messages give it, and the checks that tensors have in
// common. Each check refuses the call where the tensor is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/problem.h"

namespace flashtile::api {

class TensorArgument {
public:
    // `name` must outlive this; it is a literal everywhere.
    TensorArgument(const flashtile_tensor* tensor, const char* name) : tensor_(tensor), name_(name) {}

    bool present() const { return tensor_ != nullptr; }
    const flashtile_tensor& operator*() const { return *tensor_; }
    const flashtile_tensor* operator->() const { return tensor_; }
    const char* name() const { return name_; }

    DType dtype() const { return static_cast<DType>(tensor_->dtype); }
    std::int64_t shape(int n) const { return tensor_->shape[n]; }
    // 0 for a dimension of size 1 and for a tensor without elements: what the caller wrote there is never read.
    std::int64_t stride(int n) const;

    void require() const;
    // What holds for every tensor: a known dtype, a sane shape, an extent that fits 63 bits, data where there are
    // elements.
    void check_form() const;
    void check_rank(int rank, const char* meaning) const;
    void check_shape(std::span<const std::int64_t> expected, const char* meaning) const;
    void check_shape(std::initializer_list<std::int64_t> expected, const char* meaning) const;
    void check_dtype(DType expected, const char* why) const;
    void check_integer() const;    // int32 or int64
    void check_float() const;      // fp32, fp16 or bf16
    void check_innermost() const;  // contiguous
    void check_columns(std::int64_t most) const;
    void check_device(const TensorArgument& like) const;

    // The shape, right-aligned in (batch, heads, seqlen_q, seqlen_k). Each size must be 1 or that of `full`.
    std::array<std::int64_t, 4> check_broadcast(const std::array<std::int64_t, 4>& full) const;

private:
    bool empty() const;

    const flashtile_tensor* tensor_;
    const char* name_;
};

// Refuses sizes whose product, each counted as at least 1, is over 2^47: views without elements and broadcast ones can
// claim any size. No memory holds more rows, and no product of sizes in a backend overflows below it.
void check_count(const char* what, std::initializer_list<std::int64_t> sizes);

// "(2, 5, 4, 8)"
std::string shape_text(std::span<const std::int64_t> shape);
std::string shape_text(const flashtile_tensor& tensor);

// The tensor as the backends take it.
Operand rows_operand(const TensorArgument& tensor);       // (batch, rows, heads, d), or (rows, heads, d) when packed
Operand lse_operand(const TensorArgument& tensor);        // (batch, heads, rows), or (heads, rows) when packed
Operand broadcast_operand(const TensorArgument& tensor);  // right-aligned in (batch, heads, rows, columns)

// Checks a contiguous list of int32 or int64 of this shape, which lies where `like` does.
Lengths list_operand(const TensorArgument& list, std::span<const std::int64_t> shape, const char* meaning,
                     const TensorArgument& like);

}  // namespace flashtile::api
