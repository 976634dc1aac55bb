// access.cpp: see access.h.
#include "cuda/plan/access.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <optional>

#include "cuda/plan/append_kv.h"
#include "cuda/tensor_map.h"

namespace flashtile::gpu {
namespace {

// What kernels compute in: e4m3 becomes 16 bits as it is loaded, unless its kernel has no use for vector_bytes.
std::int64_t computed_size(const Problem& p) {
    return std::max<std::int64_t>(size_of(p.dtype), 2);
}

// Bytes of what kernels compute in, of so many elements as a vector in memory may have.
int vector_bytes_of(std::uint64_t all_bytes, std::int64_t size, std::int64_t computed) {
    const int aligned = alignment_of(all_bytes);
    return aligned == 16 ? 16 : static_cast<int>(std::min<std::int64_t>(16, aligned * computed / size));
}

bool holds_values(const Problem& p, const Operands& x) {
    const auto alike = [](std::int64_t count, std::int64_t k, std::int64_t v) { return count <= 1 || k == v; };
    return x.k.data == x.v.data && p.head_dim_v <= p.head_dim && alike(p.rows_k(), x.k.stride_row, x.v.stride_row) &&
           alike(p.kv_heads, x.k.stride_head, x.v.stride_head) &&
           alike(runs_of_keys(p), x.k.stride_batch, x.v.stride_batch);
}

bool lies_evenly(const Problem& p, const Operand& q) {
    if (p.packed || p.batch <= 1 || p.seqlen_q <= 1 || p.rotates_q_aside) return true;
    return q.stride_batch == q.stride_row * p.seqlen_q;
}

bool lies_near(const functions::FunctionTensor& tensor) {
    constexpr std::int64_t kWidest = 8;  // bytes of an element
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / kWidest;
    std::int64_t farthest = 0;
    for (int d = 0; d < tensor.rank; ++d) {
        if (tensor.shape[d] <= 1) continue;
        const std::int64_t stride = std::abs(tensor.stride[d]);
        if (stride > kMost || tensor.shape[d] - 1 > kMost || farthest > kMost) return false;
        farthest += (tensor.shape[d] - 1) * stride;  // of two numbers of 31 bits
    }
    return farthest <= kMost;
}

}  // namespace

int alignment_of(std::uint64_t bytes) {
    return bytes == 0 ? 16 : 1 << std::min(4, std::countr_zero(bytes));
}

Access access_of(const Problem& p, const Operands& given) {
    // where forward appends first, it may read the rotated queries from another place
    std::optional<Operands> rotated;
    if (p.appends && given.append.q_out) rotated.emplace(given).q = given.append.q_out;
    const Operands& x = rotated ? *rotated : given;
    Access access;
    const auto see = [&](const Operand& t, std::int64_t rows, std::int64_t heads, std::int64_t runs) {
        if (!t) return;
        const std::int64_t size = size_of(t.dtype);
        std::uint64_t all = reinterpret_cast<std::uintptr_t>(t.data);
        const auto add = [&](std::int64_t elements) { all |= static_cast<std::uint64_t>(elements * size); };
        add(p.head_dim), add(p.head_dim_v);
        if (rows > 1) add(t.stride_row);
        if (heads > 1) add(t.stride_head);
        if (runs > 1) add(t.stride_batch);
        access.vector_bytes = std::min(access.vector_bytes, vector_bytes_of(all, size, computed_size(p)));
    };
    for (const Operand* t : {&x.q, &x.out, &x.dout, &x.dq}) see(*t, p.rows_q(), p.heads, p.runs());
    for (const Operand* t : {&x.k, &x.v, &x.dk, &x.dv}) see(*t, p.rows_k(), p.kv_heads, runs_of_keys(p));
    access.tensor_maps = can_map(p, x);
    access.bias_map = can_map_bias(p, x);
    access.even_queries = lies_evenly(p, x.q);
    access.values_in_keys = holds_values(p, x);
    access.lse = static_cast<bool>(x.lse);
    access.near_tensors = std::ranges::all_of(x.function_tensors, lies_near);
    access.seqused = static_cast<bool>(x.seqused_k);
    access.dbias = static_cast<bool>(x.dbias);
    access.dsinks = static_cast<bool>(x.dsinks);
    access.dtensors = std::ranges::any_of(x.dtensors, [](const functions::TensorGradient& to) { return bool(to); });
    if (p.appends) access.append_bytes = append_vector_bytes(p.append, x.append);
    access.bias_batch = x.bias_batch;
    access.bias_heads = x.bias_heads;
    access.bias_rows = x.bias_rows;
    access.bias_cols = x.bias_cols;
    return access;
}

Access contiguous_access(const Problem& p) {
    Access access;
    const auto columns = static_cast<std::uint64_t>(p.head_dim | p.head_dim_v);
    access.vector_bytes = alignment_of(columns * static_cast<std::uint64_t>(computed_size(p)));
    const auto narrowest = static_cast<std::uint64_t>(p.dtype_of_k() == DType::fp8_e4m3 ? 1 : size_of(p.dtype));
    access.tensor_maps = alignment_of(columns * narrowest) == 16;
    return access;
}

}  // namespace flashtile::gpu
