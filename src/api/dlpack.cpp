// dlpack.cpp: a view from a DLTensor, whose layout is a stable ABI (https://dmlc.github.io/dlpack), so that no header
// of another project is needed.
#include "api/dlpack.h"

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/problem.h"

namespace flashtile::api {
namespace {

struct DlTensor {
    void* data;
    std::int32_t device_type;
    std::int32_t device_id;
    std::int32_t ndim;
    std::uint8_t type_code;
    std::uint8_t type_bits;
    std::uint16_t type_lanes;
    std::int64_t* shape;
    std::int64_t* strides;  // in elements; null: row-major
    std::uint64_t byte_offset;
};

enum TypeCode : std::uint8_t { kInt = 0, kFloat = 2, kBfloat = 4, kBool = 6, kFloat8E4m3fn = 10 };

DType dtype_of(const DlTensor& t) {
    const int code = t.type_code, bits = t.type_bits;
    if (t.type_lanes == 1) {
        if (code == kFloat && bits == 32) return DType::fp32;
        if (code == kFloat && bits == 16) return DType::fp16;
        if (code == kBfloat && bits == 16) return DType::bf16;
        if (code == kBool && bits == 8) return DType::boolean;
        if (code == kFloat8E4m3fn && bits == 8) return DType::fp8_e4m3;
        if (code == kInt && bits == 32) return DType::int32;
        if (code == kInt && bits == 64) return DType::int64;
    }
    throw Error(FLASHTILE_INVALID_ARGUMENT,
                "dl_tensor.dtype is (code " + std::to_string(code) + ", " + std::to_string(bits) + " bits, " +
                    std::to_string(t.type_lanes) +
                    " lanes), allowed is float 16 or 32, bfloat 16, float8_e4m3fn, bool 8, int 32 or 64");
}

}  // namespace

flashtile_tensor from_dlpack(const void* dl_tensor) {
    if (dl_tensor == nullptr) throw Error(FLASHTILE_INVALID_ARGUMENT, "dl_tensor is NULL, allowed is a DLTensor");
    const auto& from = *static_cast<const DlTensor*>(dl_tensor);
    if (from.ndim < 0 || from.ndim > FLASHTILE_MAX_RANK)
        throw Error(FLASHTILE_INVALID_ARGUMENT, "dl_tensor.ndim is " + std::to_string(from.ndim) +
                                                    ", allowed is 0 to " + std::to_string(FLASHTILE_MAX_RANK));
    if (from.ndim > 0 && from.shape == nullptr)
        throw Error(FLASHTILE_INVALID_ARGUMENT,
                    "dl_tensor.shape is NULL, allowed is an array of ndim " + std::to_string(from.ndim));
    flashtile_tensor to{};
    to.data = from.data != nullptr ? static_cast<char*>(from.data) + from.byte_offset : nullptr;
    to.dtype = static_cast<std::int32_t>(dtype_of(from));
    // Pinned host memory (3) and managed memory (13) are addressed as the CPU's and CUDA's.
    to.device_type =
        from.device_type == 3 ? FLASHTILE_CPU : (from.device_type == 13 ? FLASHTILE_CUDA : from.device_type);
    to.device_id = from.device_id;
    to.rank = from.ndim;
    std::uint64_t contiguous = 1;  // unsigned: what wraps here is refused by the call's own checks
    for (int n = from.ndim; n-- > 0;) {
        to.shape[n] = from.shape[n];
        to.stride[n] = from.strides != nullptr ? from.strides[n] : static_cast<std::int64_t>(contiguous);
        contiguous *= static_cast<std::uint64_t>(from.shape[n]);
    }
    return to;
}

}  // namespace flashtile::api
