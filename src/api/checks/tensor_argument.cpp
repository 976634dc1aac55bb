// tensor_argument.cpp: see tensor_argument.h.
#include "api/checks/tensor_argument.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "api/checks/refuse.h"

namespace flashtile::api {

bool TensorArgument::empty() const {
    return std::count(tensor_->shape, tensor_->shape + tensor_->rank, 0) != 0;
}

std::int64_t TensorArgument::stride(int n) const {
    return tensor_->shape[n] > 1 && !empty() ? tensor_->stride[n] : 0;
}

void TensorArgument::require() const {
    if (tensor_ == nullptr) refuse(name_, "NULL", "a tensor");
}

void TensorArgument::check_form() const {
    if (tensor_->rank < 0 || tensor_->rank > FLASHTILE_MAX_RANK)
        refuse(text(name_, ".rank"), tensor_->rank, text("0 to ", FLASHTILE_MAX_RANK));
    const std::int64_t size = size_of(dtype());
    if (size == 0) refuse(text(name_, ".dtype"), tensor_->dtype, "one of flashtile_dtype");
    for (int n = 0; n < tensor_->rank; ++n)
        if (tensor_->shape[n] < 0) refuse(text(name_, ".shape"), shape_text(*tensor_), "no negative size");
    if (empty()) return;
    std::int64_t count = size, reach = size;
    for (int n = 0; n < tensor_->rank; ++n) {
        std::int64_t step = 0;
        if (__builtin_mul_overflow(count, tensor_->shape[n], &count) ||
            (tensor_->shape[n] > 1 &&
             (__builtin_mul_overflow(tensor_->stride[n], tensor_->shape[n] - 1, &step) ||
              __builtin_mul_overflow(step, size, &step) || __builtin_add_overflow(reach, step, &reach))))
            refuse(text(name_, ".shape"), shape_text(*tensor_), "one whose size and extent in bytes fit 63 bits");
        if (tensor_->shape[n] > 1 && tensor_->stride[n] < 0)
            refuse(text(name_, ".stride"), text(tensor_->stride[n], " in dimension ", n), "no negative stride");
    }
    if (tensor_->data == nullptr) refuse(text(name_, ".data"), "NULL", "a pointer (the tensor has elements)");
    if (reinterpret_cast<std::uintptr_t>(tensor_->data) % static_cast<std::uintptr_t>(size) != 0)
        refuse(text(name_, ".data"), tensor_->data, text("a multiple of its element's ", size, " bytes"));
}

void TensorArgument::check_rank(int rank, const char* meaning) const {
    if (tensor_->rank != rank) refuse(text(name_, ".rank"), tensor_->rank, text(rank, ": ", meaning));
}

void TensorArgument::check_shape(std::span<const std::int64_t> expected, const char* meaning) const {
    const std::span<const std::int64_t> shape(tensor_->shape, static_cast<std::size_t>(tensor_->rank));
    if (std::ranges::equal(shape, expected)) return;
    refuse(text(name_, ".shape"), shape_text(shape), text(meaning, " = ", shape_text(expected)));
}
void TensorArgument::check_shape(std::initializer_list<std::int64_t> expected, const char* meaning) const {
    check_shape(std::span(expected.begin(), expected.size()), meaning);
}

void TensorArgument::check_dtype(DType expected, const char* why) const {
    if (dtype() != expected)
        refuse(text(name_, ".dtype"), flashtile::name(dtype()), text(flashtile::name(expected), why));
}

void TensorArgument::check_integer() const {
    if (dtype() != DType::int32 && dtype() != DType::int64)
        refuse(text(name_, ".dtype"), flashtile::name(dtype()), "int32 or int64");
}

void TensorArgument::check_float() const {
    const DType is = dtype();
    if (is != DType::fp32 && is != DType::fp16 && is != DType::bf16)
        refuse(text(name_, ".dtype"), flashtile::name(is), "fp32, fp16 or bf16");
}

void TensorArgument::check_columns(std::int64_t most) const {
    const std::int64_t columns = shape(tensor_->rank - 1);
    if (columns < 1 || columns > most)
        refuse(text(name_, ".shape"), shape_text(*tensor_), text("a head_dim from 1 to ", most));
}

void TensorArgument::check_innermost() const {
    const int last = tensor_->rank - 1;
    if (last >= 0 && tensor_->shape[last] > 1 && tensor_->stride[last] != 1)
        refuse(text(name_, ".stride"), text(tensor_->stride[last], " in the innermost dimension"), "1 (contiguous)");
}

void TensorArgument::check_device(const TensorArgument& like) const {
    if (tensor_->device_type != like->device_type || tensor_->device_id != like->device_id)
        refuse(text(name_, "'s device"), text(tensor_->device_type, ":", tensor_->device_id),
               text("that of ", like.name(), ", ", like->device_type, ":", like->device_id));
}

std::array<std::int64_t, 4> TensorArgument::check_broadcast(const std::array<std::int64_t, 4>& full) const {
    if (tensor_->rank > 4) refuse(text(name_, ".rank"), tensor_->rank, "at most 4");
    std::array<std::int64_t, 4> shape = {1, 1, 1, 1};
    std::copy_n(tensor_->shape, tensor_->rank, shape.data() + 4 - tensor_->rank);
    for (std::size_t n = 0; n < 4; ++n)
        if (shape[n] != 1 && shape[n] != full[n])
            refuse(text(name_, ".shape"), shape_text(*tensor_),
                   text("one that broadcasts to (batch, heads, seqlen_q, seqlen_k) = ", shape_text(full)));
    return shape;
}

void check_count(const char* what, std::initializer_list<std::int64_t> sizes) {
    double product = 1;
    for (const std::int64_t size : sizes) product *= static_cast<double>(std::max<std::int64_t>(size, 1));
    if (product <= 0x1p47) return;
    std::string list;
    for (const std::int64_t size : sizes) list += (list.empty() ? "" : " x ") + std::to_string(size);
    refuse(text(what, " (each at least 1)"), list, "at most 2^47");
}

std::string shape_text(std::span<const std::int64_t> shape) {
    std::string list;
    for (const std::int64_t size : shape) list += (list.empty() ? "" : ", ") + std::to_string(size);
    return "(" + list + ")";
}
std::string shape_text(const flashtile_tensor& tensor) {
    return shape_text(std::span(tensor.shape, static_cast<std::size_t>(tensor.rank)));
}

Operand rows_operand(const TensorArgument& t) {
    const int lead = t->rank - 3;
    return {t->data, t.dtype(), lead != 0 ? t.stride(0) : 0, t.stride(lead), t.stride(lead + 1), 1};
}

Operand lse_operand(const TensorArgument& t) {
    const int lead = t->rank - 2;
    return {t->data, t.dtype(), lead != 0 ? t.stride(0) : 0, t.stride(lead + 1), t.stride(lead), 1};
}

Operand broadcast_operand(const TensorArgument& t) {
    const auto stride = [&](int from_last) { return t->rank >= from_last ? t.stride(t->rank - from_last) : 0; };
    const std::int64_t column = t->rank >= 1 && t.shape(t->rank - 1) > 1 ? t->stride[t->rank - 1] : 0;
    if (column != 0 && column != 1)
        refuse(text(t.name(), ".stride"), text(column, " in the innermost dimension"),
               "1 (contiguous) or 0 (broadcast)");
    return {t->data, t.dtype(), stride(4), stride(2), stride(3), column};
}

Lengths list_operand(const TensorArgument& t, std::span<const std::int64_t> shape, const char* meaning,
                     const TensorArgument& like) {
    t.check_form();
    t.check_rank(static_cast<int>(shape.size()), meaning);
    t.check_innermost();
    t.check_device(like);
    t.check_integer();
    t.check_shape(shape, meaning);
    if (t->rank == 2 && t.shape(0) > 1 && t.shape(1) > 0 && t.stride(0) != t.shape(1))
        refuse(text(t.name(), ".stride"), text(t.stride(0), " in dimension 0"), text(t.shape(1), " (contiguous)"));
    return {t->data, t.dtype() == DType::int64};
}

}  // namespace flashtile::api
