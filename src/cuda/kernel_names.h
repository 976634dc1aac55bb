// kernel_names.h: kernels and element types by name. A kernel's name is that of its enumerator, of its function and of
// its file in src/cuda/kernels.
#pragma once

#include "shared/kernel_config.h"

namespace flashtile::gpu {

inline constexpr const char* kUnknownName = "unknown";  // of what is no enumerator

constexpr const char* name_of(Kernel kernel) {
    switch (kernel) {
        case Kernel::forward_sm80:
            return "forward_sm80";
        case Kernel::split_forward_sm80:
            return "split_forward_sm80";
        case Kernel::forward_sm90:
            return "forward_sm90";
        case Kernel::latent_forward_sm90:
            return "latent_forward_sm90";
        case Kernel::backward_prepare:
            return "backward_prepare";
        case Kernel::backward_sm80:
            return "backward_sm80";
        case Kernel::backward_sm90:
            return "backward_sm90";
        case Kernel::backward_wide_sm90:
            return "backward_wide_sm90";
        case Kernel::backward_pair_sm90:
            return "backward_pair_sm90";
        case Kernel::backward_finish:
            return "backward_finish";
        case Kernel::backward_bias_sm80:
            return "backward_bias_sm80";
        case Kernel::backward_tensors_sm80:
            return "backward_tensors_sm80";
        case Kernel::clear_tensors:
            return "clear_tensors";
        case Kernel::backward_sinks:
            return "backward_sinks";
        case Kernel::dropout_mask:
            return "dropout_mask";
        case Kernel::block_kinds:
            return "block_kinds";
        case Kernel::mask_blocks:
            return "mask_blocks";
        case Kernel::deal_splits:
            return "deal_splits";
        case Kernel::combine:
            return "combine";
        case Kernel::combine_shares:
            return "combine_shares";
        case Kernel::merge:
            return "merge";
        case Kernel::append_kv:
            return "append_kv";
        case Kernel::quantize:
            return "quantize";
        case Kernel::dequantize:
            return "dequantize";
    }
    return kUnknownName;
}

// The struct that a kernel takes, in src/shared.
constexpr const char* params_of(Kernel kernel) {
    switch (kernel) {
        case Kernel::merge:
            return "MergeParams";
        case Kernel::append_kv:
            return "AppendParams";
        case Kernel::quantize:
        case Kernel::dequantize:
            return "QuantizeParams";
        default:
            return "KernelParams";
    }
}

constexpr const char* name_of(Element element) {
    switch (element) {
        case Element::fp32:
            return "fp32";
        case Element::fp16:
            return "fp16";
        case Element::bf16:
            return "bf16";
        case Element::e4m3:
            return "e4m3";
    }
    return kUnknownName;
}

}  // namespace flashtile::gpu
